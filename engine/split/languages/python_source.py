"""A Python source as the things it has at module level: what each defines, what each uses.

Names are those of the module: what a function calls its arguments and variables is its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator

from engine.split.languages.c_source import Item
from harness.errors import InputError, Refused

_CHOICES = re.compile(r"#\s*kopt:\s*knob\s+\w+\s+in\s+\[([^\]]*)\]")
_WORD = re.compile(r"[A-Za-z_]\w*")
Def = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[int, int, str]
"""A line (from 1) and a column (bytes) at which a name stands."""


def items(source: str) -> tuple[Item, ...]:
    """Return what a module has, in order. Raises InputError where it is no Python."""
    found = list(_items(source))
    used = {name for item in found for name in item.uses - item.defines}
    return tuple(Item(begin=item.begin, end=item.end, text=item.text, defines=item.defines,
                      uses=item.uses, function=item.function, params=item.params,
                      static=item.function in used or item.function.startswith("_"))
                 for item in found)


def renamed(text: str, name_of: Callable[[str], str]) -> str:
    """Return the text of something at module level with the module's names replaced.

    Raises Refused for a name in an f-string, which cannot be told from its text.
    """
    lines = _lines(text)
    for line, column, name in sorted(_places(_parsed(text), text), reverse=True):
        new = name_of(name)
        raw = lines[line - 1].encode()
        if new == name:
            continue
        if raw[column:column + len(name)] != name.encode():
            raise Refused(f"{name} is used in an f-string", fix="give it to the string by a name")
        lines[line - 1] = (raw[:column] + new.encode() + raw[column + len(name):]).decode()
    return "".join(lines)


def names(source: str) -> frozenset[str]:
    """Return every name in a source, whatever it is of."""
    return frozenset(_WORD.findall(source))


def function_of(item: Item) -> Def | None:
    """Return the plain function that something is, None for all else."""
    body = _parsed(item.text).body
    only = body[0] if len(body) == 1 else None
    return only if isinstance(only, ast.FunctionDef) and not only.decorator_list else None


def _lines(text: str) -> list[str]:
    """Return the lines as the parser counts them, to which a form feed is no end of one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _items(source: str) -> Iterator[Item]:
    starts = [0]
    for line in _lines(source):
        starts.append(starts[-1] + len(line))
    at = 0
    held: list[ast.stmt] = []
    body = _parsed(source).body
    for place, node in enumerate(body):
        held.append(node)
        after = body[place + 1] if place + 1 < len(body) else None
        if after is not None and _first(after) <= (node.end_lineno or 0):
            continue  # another statement on the same line
        begin, end = starts[_first(held[0]) - 1], starts[node.end_lineno or 0]
        assert begin >= at
        yield _item(source[begin:end], begin, end, held)
        at, held = end, []


def _item(text: str, begin: int, end: int, nodes: list[ast.stmt]) -> Item:
    chosen = _CHOICES.search(text)
    function = nodes[0] if len(nodes) == 1 and isinstance(nodes[0], ast.FunctionDef) else None
    uses = {name for _, _, name in _places(_parsed(text), text)}
    return Item(begin=begin, end=end, text=text, defines=frozenset(_defined(nodes)),
                uses=frozenset(uses | set(_WORD.findall(chosen[1] if chosen else ""))),
                function=function.name if function is not None else "",
                params=ast.unparse(function.args) if function is not None else "")


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        raise InputError("the source is no Python", where=f"line {line}") from None


def _first(node: ast.stmt) -> int:
    """Return the line on which a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _defined(nodes: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements give a meaning to; imported ones are not copied."""
    for node in nodes:
        if isinstance(node, Def | ast.ClassDef):
            yield node.name
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    yield inner.id
                elif isinstance(inner, Def | ast.ClassDef):
                    yield inner.name


def _places(tree: ast.Module, text: str) -> list[Place]:
    finder = _NameFinder([line.removesuffix("\n") for line in _lines(text)])
    finder.visit(tree)
    return finder.found


class _NameFinder(ast.NodeVisitor):
    """Finds where names of the module stand."""

    def __init__(self, lines: list[str]) -> None:
        self.found: list[Place] = []
        self._lines = lines
        self._scopes: list[set[str]] = []

    def visit_Name(self, node: ast.Name) -> None:
        self._add(node.lineno, node.col_offset, node.id)

    def visit_Global(self, node: ast.Global) -> None:
        raw = self._lines[node.lineno - 1].encode()
        for name in node.names:
            at = re.search(rb"\b" + name.encode() + rb"\b", raw[node.col_offset:])
            if at is not None:
                self.found.append((node.lineno, node.col_offset + at.start(), name))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._named(node, "class")
        self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._outside(node.args)
        self._inside(_arguments(node.args), [node.body])

    def _function(self, node: Def) -> None:
        self._named(node, "def")
        for one in (*node.decorator_list, *([node.returns] if node.returns else [])):
            self.visit(one)
        self._outside(node.args)
        own = {inner.id for part in node.body for inner in ast.walk(part)
               if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
        shared = {name for part in node.body for inner in ast.walk(part)
                  if isinstance(inner, ast.Global) for name in inner.names}
        inner_names = {inner.name for part in node.body for inner in ast.walk(part)
                       if isinstance(inner, Def | ast.ClassDef)}
        self._inside((own | inner_names | _arguments(node.args)) - shared, node.body)

    def _outside(self, args: ast.arguments) -> None:
        """Visit what of a signature belongs to the scope around it."""
        for one in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
            if one is not None and one.annotation is not None:
                self.visit(one.annotation)
        for default in (*args.defaults, *args.kw_defaults):
            if default is not None:
                self.visit(default)

    def _inside(self, own: set[str], body: Iterable[ast.AST]) -> None:
        self._scopes.append(own)
        for one in body:
            self.visit(one)
        self._scopes.pop()

    def _named(self, node: Def | ast.ClassDef, word: str) -> None:
        raw = self._lines[node.lineno - 1].encode()[node.col_offset:]
        at = re.search(word.encode() + rb"\s+", raw)
        if at is not None:
            self._add(node.lineno, node.col_offset + at.end(), node.name)

    def _add(self, line: int, column: int, name: str) -> None:
        if not any(name in scope for scope in self._scopes):
            self.found.append((line, column, name))


def _arguments(args: ast.arguments) -> set[str]:
    return {one.arg for one in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg,
                                args.kwarg) if one is not None}
