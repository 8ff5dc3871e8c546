"""C as a language whose sources can be split.

tree-sitter finds the top-level items. Names are found by a regular expression, since macros' bodies
are plain text to the grammar; a macro may also break the grammar in a function's body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from tree_sitter import Node

from engine.split.languages.conditions import Condition
from engine.split.languages.language import DispatchBlock, Language, table, wrapped_call
from engine.split.languages.syntax import EntryFunction, Item, parse, walk

_COMMENT = r"//(?:\\\r?\n|[^\n])*|/\*.*?\*/"
_WORD = re.compile(
    rf"{_COMMENT}|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'"
    r"|\.?[0-9](?:[eEpP][+-]|[0-9A-Za-z_.])*"
    r"|(?:(?<!\.)\.|->)(?:\s|/\*.*?\*/)*[A-Za-z_]\w*"  # a member of a struct
    r"|(?P<name>[A-Za-z_]\w*)", re.DOTALL | re.ASCII)
_REST_OF_LINE = re.compile(r"[ \t]*(?:/\*[^\n]*?\*/[ \t]*|//[^\n]*)?(?:\r?\n|\Z)")
_WHOLE_NUMBER = re.compile(
    r"const|volatile|register|unsigned|signed|int|long|short|char|s?size_t|ssize_t|ptrdiff_t"
    r"|u?int(?:8|16|32|64)_t|u?intptr_t")
_UNKNOWN_TO_GRAMMAR = re.compile(
    r"^(?P<define>[ \t]*#[ \t]*define[ \t]+"
    r"(?:\w+(?:\([^)\n]*\))?(?P<blank>[ \t]+\r?)\n|(?:\\\r?\n|[^\n])*))"
    r"|^[ \t]*#[ \t]*if(?:def|[ \t]+defined)[ \t(]+__cplusplus\b[^\n]*\n"
    r"\s*(?:extern\s*\"C\"\s*\{|\})\s*#[ \t]*endif[^\n]*"
    r"|__attribute__\s*\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)"
    r"|\b__(?:global|device|host|shared|constant|managed|forceinline|noinline)__\b"
    r"|\b__launch_bounds__\s*\([^()]*\)", re.MULTILINE)
"""What the grammar cannot parse: blanks after an empty macro, linkage for C++, attributes, words of
CUDA. Whole macros match too, so that nothing in their bodies does."""
_TAGGED = ("struct_specifier", "union_specifier", "enum_specifier")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_NAMES = ("identifier", "type_identifier", "primitive_type")
_BLOCK = re.compile(
    r"/\* kopt split: (?P<entry>\w+) (?P<table>(?:(?!\*/).)*)\*/\n(?P<code>.*?)"
    r"/\* kopt split: end \*/\n?", re.DOTALL)


class C(Language):
    """Plain C: knobs are macros, and an entry is an exported function."""

    knobs = "c"
    gap = "\n"
    block = _BLOCK

    def items(self, source: str) -> tuple[Item, ...]:
        nodes: list[Node] = []
        ends: list[int] = []
        for node in parse_c(source).children:
            if node.type == ";" and nodes:  # ends a struct, union or enum without a variable
                ends[-1] = node.end_byte
            elif node.type != "comment":
                nodes.append(node)
                ends.append(node.end_byte)
        return tuple(_item(source, node, end) for node, end in zip(nodes, ends, strict=True))

    def renamed(self, text: str, name_of: Callable[[str], str]) -> str:
        return _WORD.sub(lambda word: name_of(word[0]) if word["name"] else word[0], text)

    def names(self, source: str) -> frozenset[str]:
        return frozenset(word[0] for word in _WORD.finditer(source) if word["name"])

    def takes(self, entry: EntryFunction, columns: Iterable[str]) -> bool:
        return set(columns) <= set(entry.columns)

    def dispatcher(self, block: DispatchBlock, kernel: Item) -> str:
        assert kernel.entry is not None  # otherwise it would have no dispatcher
        head = re.sub(_COMMENT, " ", kernel.head, flags=re.DOTALL)
        header = " ".join(f"{head}{block.entry}".split())
        call = "return " if "void" not in head.split() or "*" in head else ""
        arguments = kernel.entry.arguments
        lines = ["/* " + "\n".join(table(block)) + " */",
                 f"{header}({kernel.params}) {{"]
        for place, branch in enumerate(block.branches):
            lines += [f"    {'else ' if place else ''}if ({branch.condition})",
                      wrapped_call(f"{call}{branch.kernel}", arguments)]
        lines += ["    else", wrapped_call(f"{call}{block.default}", arguments), "}"]
        return "\n".join([*lines, "/* kopt split: end */", ""])

    def calls(self, code: str, kernel: str, condition: Condition | None) -> bool:
        if condition is not None:
            return f"if ({condition}) " in code and f"{kernel}(" in code
        return f"else {kernel}(" in code or f"else return {kernel}(" in code

    def comment(self, text: str) -> str:
        return f"/* {text} */\n"

    def is_header(self, item: Item) -> bool:
        return re.match(r"\s*#[ \t]*include", item.text) is not None


def parse_c(source: str, *, tolerates_errors: bool = False) -> Node:
    """Return the root of a C source's tree, its offsets in characters. Raises InputError.

    With `tolerates_errors` syntax errors raise nothing: nodes say which parts have some.
    """
    plain = _UNKNOWN_TO_GRAMMAR.sub(_parsable_replacement, source)
    return parse("c", plain, lambda node: tolerates_errors or _can_ignore_errors(source, node))


def _parsable_replacement(match: re.Match[str]) -> str:
    """Return a replacement that the grammar can parse, of the same length."""
    if match["blank"]:
        return match[0].removesuffix(match["blank"] + "\n") + "\n" + match["blank"]
    return match[0] if match["define"] else re.sub(r"[^\n]", " ", match[0])


def _can_ignore_errors(source: str, node: Node) -> bool:
    """Return whether syntax errors may be ignored: in a balanced body, or in a macro of a head."""
    if node.is_error:
        return bool(node.children) and all(
            child.type in ("identifier", "call_expression", "comment") for child in node.children)
    return node.type == "compound_statement" and node.parent is not None \
        and node.parent.type == "function_definition" \
        and _brackets_match(source[node.start_byte:node.end_byte])


def _brackets_match(text: str) -> bool:
    expected: list[str] = []
    for mark in re.findall(r"[()\[\]{}]", _WORD.sub(" ", text)):
        if mark in _CLOSING:
            expected.append(_CLOSING[mark])
        elif not expected or expected.pop() != mark:
            return False
    return not expected


def _item(source: str, node: Node, end: int) -> Item:
    begin = node.start_byte
    if node.type.startswith("preproc") and not source[:begin].rpartition("\n")[2].strip():
        begin = source.rfind("\n", 0, begin) + 1
    if not source[begin:end].endswith("\n") and (rest := _REST_OF_LINE.match(source, end)):
        end = rest.end()
    text = source[begin:end]
    defines, uses = frozenset(_defined(source, node)), C().names(text)
    declarator = next((part for part in walk(node, leaves=("parameter_list", "compound_statement"))
                       if part.type == "function_declarator"), None)
    inner = declarator and declarator.child_by_field_name("declarator")
    parameters = declarator and declarator.child_by_field_name("parameters")
    if node.type != "function_definition" or inner is None or parameters is None \
            or inner.type != "identifier":
        return Item(begin=begin, end=end, text=text, defines=defines, uses=uses)
    head = source[begin:inner.start_byte]
    return Item(begin=begin, end=end, text=text, defines=defines, uses=uses, head=head,
                function=source[inner.start_byte:inner.end_byte], static="static" in head.split(),
                params=source[parameters.start_byte + 1:parameters.end_byte - 1],
                entry=_entry(source, parameters))


def _entry(source: str, parameters: Node) -> EntryFunction | None:
    arguments, columns = [], []
    for parameter in parameters.named_children:
        if parameter.type == "comment":
            continue
        declarator = parameter.child_by_field_name("declarator")
        name = declarator and _name_in(declarator)
        code = re.sub(_COMMENT, " ", source[parameter.start_byte:parameter.end_byte],
                      flags=re.DOTALL)
        if declarator is None or name is None or "(" in code:
            return None  # cannot be passed on: no name, or a pointer to a function
        arguments.append(source[name.start_byte:name.end_byte])
        type_words = source[parameter.start_byte:declarator.start_byte]
        if declarator == name and all(map(_WHOLE_NUMBER.fullmatch, type_words.split())):
            columns.append(arguments[-1])
    return EntryFunction(arguments=tuple(arguments), columns=tuple(columns)) if arguments else None


def _defined(source: str, item: Node) -> Iterator[str]:
    """Yield the names that an item defines at file scope: macros, declared names, tags."""
    for node in walk(item, leaves=("compound_statement",)):
        named: list[Node | None] = []
        if node.type in ("declaration", "type_definition", "function_definition"):
            named = [_name_in(part) for part in node.children_by_field_name("declarator")]
        elif node.type in ("preproc_def", "preproc_function_def", "enumerator") or (
                node.type in _TAGGED and node.child_by_field_name("body")):
            named = [node.child_by_field_name("name")]
        yield from (source[name.start_byte:name.end_byte] for name in named if name is not None)


def _name_in(declarator: Node) -> Node | None:
    return next((node for node in walk(declarator, leaves=("parameter_list",))
                 if node.type in _NAMES), None)
