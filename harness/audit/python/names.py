"""Resolves names and attributes in a Python syntax tree, without running anything."""

from __future__ import annotations

import ast
import builtins
import warnings
from collections.abc import Iterator
from functools import cached_property

DEPTH = 40
ROUNDS = 4
MAX_TEXT = 1 << 18
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_BUILTINS = frozenset(dir(builtins))


class UnreadableSource(Exception):
    """The text is not Python, or nested too deeply."""


class Module:
    """One parsed source. A name resolves to everything that it may be, regardless of order."""

    def __init__(self, data: bytes, file: str) -> None:
        self.file = file
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.tree = ast.parse(data)
        except (SyntaxError, ValueError, RecursionError, MemoryError, LookupError) as error:
            raise UnreadableSource(type(error).__name__) from None
        self.lines = data.decode("utf-8", "replace").splitlines()
        self.parents: dict[ast.AST, ast.AST] = {}
        self.nodes: list[ast.AST] = [self.tree]
        for node in self.nodes:  # the list grows during the loop: breadth first, no recursion
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                self.nodes.append(child)
        self._folded: dict[ast.AST, str | None] = {}
        self.aliases: dict[str, set[str]] = {}
        self.assigned: dict[str, list[ast.expr]] = {}
        self.stars: list[str] = []
        self._bind()

    def text(self, node: ast.AST) -> str:
        line = getattr(node, "lineno", 0)
        return self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def enclosing(self, node: ast.AST) -> Iterator[Function]:
        """Yield the functions around a node, innermost first."""
        above = self.parents.get(node)
        while above is not None:
            if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield above
            above = self.parents.get(above)

    def relative(self, node: ast.ImportFrom) -> str:
        """Return the dotted module of a from-import, relative to the project's root."""
        if not node.level:
            return node.module or ""
        package = self.file.replace("\\", "/").split("/")[:-1]
        base = package[: max(0, len(package) - node.level + 1)]
        return ".".join([*base, *([node.module] if node.module else [])])

    @cached_property
    def own(self) -> frozenset[str]:
        """Return the names of the module's own top-level functions and classes."""
        return frozenset(n.name for n in self.tree.body
                         if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))

    @cached_property
    def _stored(self) -> frozenset[str]:
        """Return every name that is assigned anywhere, parameters included."""
        assigned = {n.id for n in self.nodes
                    if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        return frozenset(assigned | {n.arg for n in self.nodes if isinstance(n, ast.arg)})

    @cached_property
    def guarded(self) -> frozenset[ast.AST]:
        """Return the nodes below `if __name__ == "__main__"`, which never run in a kernel."""
        if any(isinstance(n, ast.Name) and n.id == "__name__"
               and not isinstance(n.ctx, ast.Load) for n in self.nodes):
            return frozenset()
        nodes: set[ast.AST] = set()
        for node in self.tree.body:
            if isinstance(node, ast.If) and _is_main(node.test):
                for statement in node.body:
                    nodes.update(ast.walk(statement))
        return frozenset(nodes)

    def dotted(self, node: ast.AST, depth: int = 0) -> frozenset[str]:
        """Return the dotted names that an expression may resolve to, empty if none is known."""
        if depth > DEPTH:
            return frozenset()
        if isinstance(node, ast.Name):
            return self._name(node.id, node)
        if isinstance(node, ast.Attribute):
            return frozenset(f"{base}.{node.attr}" for base in self.dotted(node.value, depth + 1))
        if isinstance(node, ast.NamedExpr | ast.Starred):
            return self.dotted(node.value, depth + 1)
        if isinstance(node, ast.IfExp):
            return self.dotted(node.body, depth + 1) | self.dotted(node.orelse, depth + 1)
        if isinstance(node, ast.Subscript):
            return self._looked_up(node.value, self.fold(node.slice), depth)
        if isinstance(node, ast.Call):
            return self._called(node, depth)
        return frozenset()

    def _name(self, name: str, node: ast.AST) -> frozenset[str]:
        if aliases := self.aliases.get(name):
            return frozenset(aliases)
        if name == "__builtins__":
            return frozenset({"builtins"})
        if name in _BUILTINS and name not in self.own:
            for function in self.enclosing(node):
                if name in parameters(function):
                    return frozenset()
            return frozenset({f"builtins.{name}"})
        if name in self.own or name in self._stored:
            return frozenset()
        return frozenset(f"{star}.{name}" for star in self.stars)

    def _looked_up(self, base: ast.expr, key: str | None, depth: int) -> frozenset[str]:
        if key is None:
            return frozenset()
        names: set[str] = set()
        for name in self.dotted(base, depth + 1):
            if name == "sys.modules":
                names.add(key)
            elif name in ("builtins.globals()", "builtins.locals()"):
                names |= self._name(key, self.tree)
            elif name.endswith(".__dict__"):
                names.add(f"{name.removesuffix('.__dict__')}.{key}")
            elif name == "builtins":
                names.add(f"builtins.{key}")
        return frozenset(names)

    def _called(self, node: ast.Call, depth: int) -> frozenset[str]:
        names: set[str] = set()
        for name in self.dotted(node.func, depth + 1):
            first = node.args[0] if node.args else None
            word = self.fold(first)
            if name in ("builtins.__import__", "importlib.__import__") and word:
                names.add(word.partition(".")[0])
            elif name == "importlib.import_module" and word:
                names.add(word)
            elif name == "builtins.getattr" and first is not None and len(node.args) > 1 \
                    and (attribute := self.fold(node.args[1])):
                names.update(f"{base}.{attribute}" for base in self.dotted(first, depth + 1))
            elif name == "builtins.vars" and first is not None:
                names.update(f"{base}.__dict__" for base in self.dotted(first, depth + 1))
            elif name in ("builtins.globals", "builtins.locals", "builtins.vars"):
                names.add(f"{name.replace('vars', 'locals')}()")
            elif name.endswith((".get", ".__getitem__", ".pop")) \
                    and isinstance(node.func, ast.Attribute):
                names |= self._looked_up(node.func.value, word, depth)
        return frozenset(names)

    def fold(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """Return the text that an expression evaluates to, None if that needs running it."""
        if node is None or depth > DEPTH:
            return None
        if node not in self._folded:
            self._folded[node] = None  # stops at names defined by themselves
            text = self._fold(node, depth)
            self._folded[node] = None if text is not None and len(text) > MAX_TEXT else text
        return self._folded[node]

    def _fold(self, node: ast.AST, depth: int) -> str | None:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bytes):
                return node.value.decode("latin-1")
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.fold(node.left, depth + 1), self.fold(node.right, depth + 1)
            return None if left is None or right is None else left + right
        if isinstance(node, ast.JoinedStr):
            return self._concatenated([v.value if isinstance(v, ast.FormattedValue) else v
                                       for v in node.values], depth)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            text, step = self.fold(node.value, depth + 1), node.slice.step
            backwards = isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)
            return text[::-1] if text is not None and backwards else None
        if isinstance(node, ast.Name):
            values = self.assigned.get(node.id, [])
            return self.fold(values[0], depth + 1) if len(values) == 1 else None
        if isinstance(node, ast.Call):
            return self._folded_call(node, depth)
        return None

    def _folded_call(self, node: ast.Call, depth: int) -> str | None:
        function, argument = node.func, node.args[0] if node.args else None
        if isinstance(function, ast.Attribute) and function.attr == "join" \
                and self.fold(function.value, depth + 1) == "" \
                and isinstance(argument, ast.List | ast.Tuple):
            return self._concatenated(argument.elts, depth)
        if isinstance(function, ast.Attribute) and function.attr in ("decode", "lower", "strip"):
            return self.fold(function.value, depth + 1)
        if isinstance(function, ast.Name) and function.id == "chr" \
                and isinstance(argument, ast.Constant) and isinstance(argument.value, int) \
                and 0 <= argument.value < 0x110000:
            return chr(argument.value)
        return None

    def _concatenated(self, parts: list[ast.expr], depth: int) -> str | None:
        texts = [self.fold(part, depth + 1) for part in parts]
        return None if any(t is None for t in texts) else "".join(t for t in texts if t)

    def _bind(self) -> None:
        pairs: list[tuple[str, ast.expr]] = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._alias(alias.asname or alias.name.partition(".")[0],
                                alias.name if alias.asname else alias.name.partition(".")[0])
            elif isinstance(node, ast.ImportFrom):
                module = self.relative(node)
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.append(module)
                    else:
                        self._alias(alias.asname or alias.name, f"{module}.{alias.name}")
            else:
                pairs += _assignments(node)
        for name, value in pairs:
            self.assigned.setdefault(name, []).append(value)
        self._folded.clear()  # computed before the names were known
        for _ in range(ROUNDS):
            for name, value in pairs:
                for found in self.dotted(value):
                    if found not in ("builtins.globals()", "builtins.locals()"):
                        self._alias(name, found)

    def _alias(self, name: str, full: str) -> None:
        known = self.aliases.setdefault(name, set())
        if len(known) < 16 and len(full) < 400:
            known.add(full)


def parameters(function: Function) -> list[str]:
    """Return a function's parameter names in order, `*args` and `**kwargs` last."""
    spec = function.args
    plain = [a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
    return plain + [a.arg for a in (spec.vararg, spec.kwarg) if a is not None]


def root(node: ast.AST) -> ast.AST:
    """Return what a chain of attributes, subscripts and method calls starts from."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return node


def _assignments(node: ast.AST) -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        return [pair for target in node.targets for pair in _pairs(target, node.value)]
    if isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        return _pairs(node.target, node.value)
    if isinstance(node, ast.AugAssign):
        return _pairs(node.target, node)  # no constant any more
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        spec = node.args
        named = [*spec.posonlyargs, *spec.args]
        last = list(zip(reversed(named), reversed(spec.defaults), strict=False))
        last += [(a, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
                 if d is not None]
        return [(argument.arg, value) for argument, value in last]
    return []


def _pairs(target: ast.expr, value: ast.AST) -> list[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        return [(target.id, value if isinstance(value, ast.expr) else ast.Constant(value=None))]
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List) \
            and len(target.elts) == len(value.elts):
        return [pair for t, v in zip(target.elts, value.elts, strict=True) for pair in _pairs(t, v)]
    return []


def _is_main(test: ast.expr) -> bool:
    return (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name)
            and test.left.id == "__name__" and len(test.ops) == 1
            and isinstance(test.ops[0], ast.Eq) and isinstance(test.comparators[0], ast.Constant)
            and test.comparators[0].value == "__main__")
