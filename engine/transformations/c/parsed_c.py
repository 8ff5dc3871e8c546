"""A C source as transformations see it: functions, names that are written, types of expressions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from tree_sitter import Node

from engine.split.languages.c_language import parse_c
from engine.split.languages.syntax import parts, walk
from engine.transformations.transformation import EditedSource, Replacement
from harness.search.space import c_knobs
from harness.search.space.knob_proposals import NEW_MARK

LOOPS = ("for_statement", "while_statement", "do_statement")
_MATH = ("sqrt", "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan",
         "tanh", "sinh", "cosh", "atan", "asin", "acos", "erf", "erfc", "fabs", "floor", "ceil",
         "pow", "fmax", "fmin", "fma", "hypot", "cbrt", "round", "trunc", "rint")
MATH = frozenset((*_MATH, *(f"{name}f" for name in _MATH)))
"""Functions of math.h whose result depends on their arguments alone."""
INTEGER = re.compile(r"(?:u?int(?:8|16|32|64|max|ptr)_t|s?size_t|ssize_t|ptrdiff_t|char|short|int"
                     r"|long|signed|unsigned|_Bool|bool)")
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]*\.?[0-9]+\.?(?:[eE][+-]?[0-9]+)?)[fFuUlL]*")
_COMMENT = re.compile(r"/\*.*|//.*", re.DOTALL)
_QUALIFIERS = frozenset(("const", "volatile", "restrict", "__restrict", "__restrict__", "static",
                         "register", "inline"))

_OPERANDS = {"assignment_expression": ("left",), "unary_expression": ("argument",),
             "binary_expression": ("left", "right"),
             "conditional_expression": ("consequence", "alternative")}
"""The operands of an expression; the widest of their types is the expression's."""


class ParsedC(EditedSource):
    """The tree of a C source; offsets are characters. Raises InputError if it cannot be parsed."""

    restrict = "restrict"
    tolerates_errors = False

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.root = parse_c(source, tolerates_errors=self.tolerates_errors)
        self._types: dict[int, dict[str, str]] = {}

    def text(self, node: Node | None) -> str:
        return "" if node is None else self.source[node.start_byte:node.end_byte]

    def line(self, node: Node) -> int:
        return node.start_point.row + 1

    @cached_property
    def functions(self) -> tuple[Node, ...]:
        """The functions that were parsed without an error, also those in `extern "C" {}`."""
        return tuple(node for node in walk(self.root, leaves=("compound_statement",))
                     if node.type == "function_definition"
                     and (body := node.child_by_field_name("body")) and not body.has_error)

    @cached_property
    def pure(self) -> frozenset[str]:
        """Functions of math.h, and macros whose value only computes: no assignment, no call."""
        macros = {self.text(name) for node in walk(self.root, leaves=("compound_statement",))
                  if node.type == "preproc_function_def"
                  and (name := node.child_by_field_name("name"))
                  and (value := node.child_by_field_name("value"))
                  and not re.search(r"(?<![=!<>])=(?!=)|\+\+|--|[;{}]|\w\s*\(", self.text(value))}
        return MATH | macros

    @cached_property
    def defined(self) -> frozenset[str]:
        """The functions that the source defines: their arguments are passed by value."""
        return frozenset(self.declared_name(declarator)[0] for function in self.functions
                         if (declarator := function.child_by_field_name("declarator")))

    @cached_property
    def constants(self) -> dict[str, str]:
        """The macros that stand for a number, with the number's text."""
        return {self.text(name): text for node in walk(self.root, leaves=("compound_statement",))
                if node.type == "preproc_def" and (name := node.child_by_field_name("name"))
                and (value := node.child_by_field_name("value"))
                and _NUMBER.fullmatch(text := _COMMENT.sub("", self.text(value)).strip())}

    def function_of(self, node: Node) -> Node:
        while node.type != "function_definition" and node.parent is not None:
            node = node.parent
        return node

    def types(self, function: Node) -> dict[str, str]:
        """Return the declared types of a function's names, `float *` for pointers and arrays.

        A name with two different types has the type "". Macros that stand for a number count too.
        """
        if function.start_byte in self._types:
            return self._types[function.start_byte]
        kinds = {name: _kind_of_literal(text) for name, text in self.constants.items()}
        self._types[function.start_byte] = kinds
        for node in parts(function, "declaration", "parameter_declaration"):
            declared = node.child_by_field_name("type")
            if declared is None:
                continue
            for part in node.children_by_field_name("declarator"):
                name, depth = self.declared_name(part)
                base = " ".join(word for word in self.text(declared).split()
                                if word not in _QUALIFIERS)
                full = f"{base} {'*' * depth}".strip()
                kinds[name] = full if kinds.get(name, full) == full else ""
        return kinds

    def declared_name(self, declarator: Node) -> tuple[str, int]:
        """Return a declarator's name, and how many pointer and array levels it has."""
        depth, node = 0, declarator
        while node.type != "identifier":
            depth += node.type in ("pointer_declarator", "array_declarator")
            inner = node.child_by_field_name("declarator") or next(
                (child for child in node.named_children if child.type.endswith("declarator")
                 or child.type == "identifier"), None)
            if inner is None:
                return "", 0
            node = inner
        return self.text(node), depth

    def declared(self, node: Node) -> frozenset[str]:
        """Return the names that the declarations in a part declare."""
        return frozenset(self.declared_name(declarator)[0] for part in parts(node, "declaration")
                         for declarator in part.children_by_field_name("declarator"))

    def indices(self, node: Node) -> list[Node]:
        """Return the indices of a part's elements, the last one where there are several."""
        return [index for part in self.elements(node)
                if (index := part.child_by_field_name("index")) is not None]

    @staticmethod
    def elements(node: Node) -> Iterator[Node]:
        """Yield the subscripts of a part, `x[i][j]` once."""
        for part in parts(node, "subscript_expression"):
            if part.parent is None or part.parent.type != "subscript_expression" \
                    or part.parent.child_by_field_name("argument") != part:
                yield part

    def names(self, node: Node) -> frozenset[str]:
        """Return the variables and functions that are named in a part of the source."""
        return frozenset(map(self.text, parts(node, "identifier")))

    def names_in(self, node: Node, *fields: str) -> frozenset[str]:
        """Return what is named in some fields of a node, such as a loop's `condition`."""
        named = filter(None, map(node.child_by_field_name, fields))
        return frozenset[str]().union(*map(self.names, named))

    def written(self, node: Node) -> frozenset[str]:
        """Return the names that a part assigns, increments, declares or takes the address of.

        If it calls a function that is not pure, `*` is among them, and so are the names in the
        arguments unless the source defines that function.
        """
        return frozenset(self._written(node))

    def _written(self, node: Node) -> Iterator[str]:
        for part in walk(node):
            if part.type == "assignment_expression":
                yield self.base(part.child_by_field_name("left"))
            elif part.type == "update_expression" or (
                    part.type == "pointer_expression" and self.text(part).startswith("&")):
                yield self.base(part.child_by_field_name("argument"))
            elif part.type == "declaration":
                for declarator in part.children_by_field_name("declarator"):
                    yield self.declared_name(declarator)[0]
            elif part.type == "call_expression" \
                    and self.text(part.children[0]) not in self.pure:
                yield "*"
                if self.text(part.children[0]) not in self.defined:  # it may be a macro
                    yield from self.names(part.children[-1])

    def base(self, node: Node | None) -> str:
        """Return the variable `x` of an expression such as `x[i]`, `*x` or `(x)`, else `*`."""
        while node is not None and node.type != "identifier":
            node = node.child_by_field_name("argument") or (
                node.named_children[0] if node.type == "parenthesized_expression" else None)
        return "*" if node is None else self.text(node)

    def kind(self, node: Node | None, types: Mapping[str, str]) -> str:
        """Return whether an expression is an `int`, a `float` or a `double`, "" if unknown."""
        if node is None:
            return ""
        match node.type:
            case "number_literal":
                return _kind_of_literal(self.text(node))
            case "identifier":
                return kind_of_type(types.get(self.text(node), ""))
            case "subscript_expression" | "pointer_expression":
                declared = types.get(self.base(node), "")
                depth = sum(1 for _ in parts(node, node.type))
                return kind_of_type(declared.removesuffix("*" * depth).strip()) \
                    if declared.endswith("*" * depth) else ""
            case "cast_expression":
                declared_type = node.child_by_field_name("type")
                return kind_of_type(self.text(declared_type)) if declared_type else ""
            case "parenthesized_expression":
                return self.kind(node.named_children[0], types)
            case "call_expression":
                name = self.text(node.children[0])
                return ("float" if name.endswith("f") else "double") if name in MATH else ""
        kinds = [self.kind(node.child_by_field_name(field), types)
                 for field in _OPERANDS.get(node.type, ())]
        return max(kinds, key=("int", "float", "double").index) if all(kinds) and kinds else ""

    def renamed(self, node: Node, name_of: Mapping[str, str]) -> list[Replacement]:
        """Return the replacements of names in a part by the texts of `name_of`."""
        return [Replacement(part.start_byte, part.end_byte, name_of[self.text(part)])
                for part in parts(node, "identifier") if self.text(part) in name_of]

    def indent(self, node: Node) -> str:
        """Return the blanks before the first word of a part's line."""
        begin = self.source.rfind("\n", 0, node.start_byte) + 1
        return re.match(r"[ \t]*", self.source[begin:])[0]  # type: ignore[index]

    def declare(self, lines: str) -> None:
        """Add lines after the includes."""
        self.insert(c_knobs.after_includes(self.source), lines)

    def _declarations(self) -> Iterator[Replacement]:
        at = c_knobs.after_includes(self.source)
        for knob in self.knobs:
            yield Replacement(at, at, f"#define {knob.name} {knob.value}  "
                                      f"{knob.declared('//', NEW_MARK)}\n")


def _kind_of_literal(text: str) -> str:
    if text.lower().startswith("0x") or not re.search(r"[.eE]|[fF]$", text):
        return "int"
    return "float" if text[-1] in "fF" else "double"


def kind_of_type(text: str) -> str:
    """Return whether a declared type is an `int`, a `float` or a `double`, "" for a pointer."""
    words = [word for word in text.split() if word not in _QUALIFIERS]
    if words in (["float"], ["double"]):
        return words[0]
    return "int" if words and all(map(INTEGER.fullmatch, words)) else ""
