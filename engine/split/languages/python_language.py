"""Python, with or without Triton, as a language whose sources can be split."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import msgspec
from tree_sitter import Node

from engine.split.languages.conditions import Condition
from engine.split.languages.language import DispatchBlock, Language, table
from engine.split.languages.syntax import EntryFunction, Item, parse, walk

WORD = re.compile(r"[A-Za-z_]\w*")
_CHOICES = re.compile(r"#\s*kopt:\s*knob\s+\w+\s+in\s+\[([^\]]*)\]")
_IMPORTS = ("import_statement", "import_from_statement", "future_import_statement")
_DEFINITIONS = ("function_definition", "class_definition")
_BINDS = {"assignment": "left", "augmented_assignment": "left", "for_statement": "left",
          "for_in_clause": "left", "named_expression": "name", "as_pattern": "alias",
          **dict.fromkeys(_DEFINITIONS, "name")}
"""The field of each kind of node that binds names."""
_SPLATS = {"list_splat_pattern": "*", "dictionary_splat_pattern": "**"}
_BLOCK = re.compile(r"# kopt split: (?P<entry>\w+) (?P<table>[^\n]*\n(?:#[^\n]*\n)+)(?P<code>.*?)"
                    r"# kopt split: end\n?", re.DOTALL)
_ARGUMENT = re.compile(r"([A-Za-z_]\w*)(?:\.[A-Za-z_]\w*|\[(?:\d+|'[^']*'|\"[^\"]*\")\])*")
"""An argument, or an expression over it such as `x.shape[1]`."""


class Python(Language):
    """Python: knobs are module constants; entries are public functions that no other item uses."""

    gap = "\n\n"
    block = _BLOCK

    def __init__(self, knobs: str = "python") -> None:
        self.knobs = knobs

    def items(self, source: str) -> tuple[Item, ...]:
        """Return the module's statements in order; those that share a line are one item."""
        starts = [0, *(statements.end() for statements in re.finditer("\n", source)), len(source)]
        lines: list[list[Node]] = []
        for node in parse("python", source).children:
            if node.type in ("comment", ";"):
                continue
            if lines and node.start_point.row <= _last_row(lines[-1][-1]):
                lines[-1].append(node)
            else:
                lines.append([node])
        statements = [_item(source, starts[nodes[0].start_point.row],
                            starts[_last_row(nodes[-1]) + 1], nodes) for nodes in lines]
        used = {name for item in statements for name in item.uses - item.defines}
        return tuple(msgspec.structs.replace(
            item, static=item.function in used or item.function.startswith("_"))
            for item in statements)

    def renamed(self, text: str, name_of: Callable[[str], str]) -> str:
        parts, at = [], 0
        for node in _module_names(text, parse("python", text)):
            parts += [text[at:node.start_byte], name_of(_text(text, node))]
            at = node.end_byte
        return "".join([*parts, text[at:]])

    def names(self, source: str) -> frozenset[str]:
        return frozenset(WORD.findall(source))

    def takes(self, entry: EntryFunction, columns: Iterable[str]) -> bool:
        return all((match := _ARGUMENT.fullmatch(column)) is not None
                   and match[1] in entry.columns for column in columns)

    def dispatcher(self, block: DispatchBlock, kernel: Item) -> str:
        assert kernel.entry is not None  # otherwise it would have no dispatcher
        arguments = ", ".join(kernel.entry.arguments)
        lines = [*(f"# {line}".replace("#    ", "#   ") for line in table(block)),
                 f"def {block.entry}({kernel.params}):"]
        for branch in block.branches:
            lines += [f"    if {_code(branch.condition)}:",
                      f"        return {branch.kernel}({arguments})"]
        return "\n".join(["", *lines, f"    return {block.default}({arguments})",
                          "# kopt split: end", ""])

    def calls(self, code: str, kernel: str, condition: Condition | None) -> bool:
        before = "" if condition is None else f"if {_code(condition)}:"
        return f"{before} return {kernel}(" in code

    def comment(self, text: str) -> str:
        return f"# {text}\n"

    def is_header(self, item: Item) -> bool:
        return item.text.startswith(("import ", "from "))


def _code(condition: Condition) -> str:
    return str(condition).replace(" && ", " and ")


def _item(source: str, begin: int, end: int, nodes: list[Node]) -> Item:
    text = source[begin:end]
    choices = _CHOICES.search(text)
    uses = {_text(source, name) for node in nodes for name in _module_names(source, node)}
    uses |= set(WORD.findall(choices[1] if choices else ""))
    defines = frozenset(name for node in nodes for name in _defined(source, node))
    inner = nodes[0].child_by_field_name("definition") or nodes[0]
    parameters = inner.child_by_field_name("parameters")
    if len(nodes) > 1 or inner.type != "function_definition" or parameters is None \
            or inner.children[0].type != "def":
        return Item(begin=begin, end=end, text=text, defines=defines, uses=frozenset(uses))
    children = [child for child in parameters.named_children if child.type != "comment"]
    return Item(begin=begin, end=end, text=text, defines=defines, uses=frozenset(uses),
                function=_text(source, inner.child_by_field_name("name")),
                params=", ".join(_text(source, parameter) for parameter in children),
                entry=_entry(source, children) if inner == nodes[0] else None)


def _entry(source: str, parameters: list[Node]) -> EntryFunction | None:
    """Return how to call a function, None if a default uses a name of the module.

    A dispatcher would pass the old kernel's value of that name on to each variant.
    """
    arguments: list[str] = []
    columns: list[str] = []
    by_keyword = False
    for parameter in parameters:
        default = parameter.child_by_field_name("value")
        if default is not None and any(node.type == "identifier" for node in walk(default)):
            return None
        by_keyword = by_keyword or parameter.type == "keyword_separator"
        if parameter.type.endswith("_separator"):
            continue
        named = parameter.named_children[0] if parameter.type.startswith("typed_") or default \
            else parameter
        name = _text(source, named).lstrip("* ")
        if named.type in _SPLATS:
            arguments.append(_SPLATS[named.type] + name)
            by_keyword = True
        else:
            arguments.append(f"{name}={name}" if by_keyword else name)
            columns.append(name)
    return EntryFunction(arguments=tuple(arguments), columns=tuple(columns))


def _defined(source: str, node: Node) -> Iterable[str]:
    """Return the names that a statement defines; imports are left out, since they are shared."""
    node = node.child_by_field_name("definition") or node
    if node.type in _DEFINITIONS:
        return [_text(source, node.child_by_field_name("name"))]
    return _bound(source, node)


def _bound(source: str, parent: Node) -> Iterator[str]:
    """Yield the names that assignments, loops and definitions below a node bind."""
    for node in walk(parent, leaves=_IMPORTS):
        if target := node.child_by_field_name(_BINDS.get(node.type, "")):
            yield from (_text(source, name) for name in walk(
                target, leaves=("attribute", "subscript")) if name.type == "identifier")


def _module_names(source: str, root: Node) -> Iterator[Node]:
    """Yield the identifiers that are names of the module, not a function's own, in order."""
    stack: list[tuple[Node, frozenset[str]]] = [(root, frozenset())]
    while stack:
        node, local = stack.pop()
        if node.type == "identifier":
            if _text(source, node) not in local:
                yield node
        elif node.is_named and node.type in ("function_definition", "lambda"):
            stack += [(child, inner) for child, inner in reversed(list(
                _parts_of_function(source, node, local)))]
        elif node.type not in _IMPORTS:
            hidden = {"attribute": "attribute", "keyword_argument": "name"}.get(node.type)
            children = node.children
            if hidden is not None:
                children = [child for child in children
                            if child != node.child_by_field_name(hidden)]
            elif node.type in ("dotted_name", "keyword_pattern"):  # of a match statement
                children = children[:1] if node.type == "dotted_name" else children[1:]
            stack += [(child, local) for child in reversed(children)]


def _parts_of_function(source: str, node: Node, local: frozenset[str],
                       ) -> Iterator[tuple[Node, frozenset[str]]]:
    """Yield the parts of a function, and the names that are local in each."""
    body = node.child_by_field_name("body")
    assert body is not None  # the source has no syntax error
    shared = {_text(source, name) for part in walk(body) if part.type == "global_statement"
              for name in part.named_children}
    locals_of_body = set(_bound(source, body)) - shared
    outer: list[Node] = []
    parameters = node.child_by_field_name("parameters")
    for parameter in parameters.named_children if parameters is not None else ():
        values = [child for child in (parameter.child_by_field_name("type"),
                                      parameter.child_by_field_name("value")) if child is not None]
        locals_of_body |= {_text(source, name) for part in (parameter.children or [parameter])
                if part not in values for name in walk(part) if name.type == "identifier"}
        outer += values
    for child in node.children:
        if child == parameters:
            yield from ((part, local) for part in outer)
        else:
            yield child, local | locals_of_body if child == body else local


def _last_row(node: Node) -> int:
    """Return the last line of a statement; a comment after its last statement does not count."""
    while children := [child for child in node.children if child.type != "comment"]:
        node = children[-1]
    return node.end_point.row


def _text(source: str, node: Node | None) -> str:
    return "" if node is None else source[node.start_byte:node.end_byte]
