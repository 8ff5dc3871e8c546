"""Resolves names and attributes in a Python syntax tree, without running anything."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Collection, Iterable, Iterator

from harness.audit.python.constants import DEPTH, HOLE, Constants
from harness.audit.python.source_tree import SourceTree, defaults, parameters

ROUNDS = 4
MAX_STEPS = 200_000
"""Steps spent on following names in one source; beyond that, names count as unknown."""

_BUILTINS = frozenset(dir(builtins))
_STANDARD = sys.stdlib_module_names
_SAME = {"posix": "os", "nt": "os", "np": "numpy", "F": "torch.nn.functional", "_C": "torch._C",
         "torch": "torch", "triton": "triton", "numpy": "numpy"}
_SUBMODULES = ("torch.signal", "torch.ops.")
"""Modules of torch named like a watched module of the standard library."""

_GETTERS = {"builtins.getattr", "inspect.getattr_static"}


class Module(SourceTree):
    """One parsed source. A name resolves to all that it is bound to anywhere in the source."""

    def __init__(self, data: bytes, file: str, modules: Collection[str] = ()) -> None:
        """Parse a source; `modules` are the dotted names of the project's own."""
        super().__init__(data, file)
        self.modules = modules
        self.aliases: dict[str, set[str]] = {}
        self.assigned: dict[str, list[ast.expr]] = {}
        self.constants = Constants(self.assigned)
        self.stars: list[str] = []
        self._steps = 0
        self._resolved: dict[tuple[ast.AST, int], frozenset[str]] = {}
        self._arguments = {n.arg for n in self.nodes if isinstance(n, ast.arg)}
        self._bind()

    def texts(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield (node, text) of the string constants, docstrings excepted."""
        for node in self.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) \
                    and not isinstance(self.parents.get(node), ast.Expr):
                yield node, self.pattern(node)

    def reach(self, node: ast.AST | None) -> Iterator[ast.AST]:
        """Yield an expression's nodes, and those of the values assigned to its names."""
        seen: set[str] = set()
        todo = [] if node is None else [node]
        while todo and self._steps < MAX_STEPS:
            self._steps += 1
            at = todo.pop()
            yield at
            if isinstance(at, ast.Name) and at.id not in seen:
                seen.add(at.id)
                todo += self.assigned.get(at.id, [])
            todo += list(ast.iter_child_nodes(at))[::-1]

    def words(self, node: ast.AST | None) -> list[str]:
        """Return the names, and the known texts, that an expression depends on."""
        nodes = list(self.reach(node))
        return [n.id for n in nodes if isinstance(n, ast.Name)] \
            + [text for n in nodes if isinstance(n, ast.expr) and (text := self.fold(n))]

    def decorators(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
        """Yield what the decorators of a function may resolve to."""
        for decorator in function.decorator_list:
            yield from self.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)

    def dotted(self, node: ast.AST, depth: int = 0) -> frozenset[str]:
        """Return the dotted names that an expression may resolve to, empty if none is known."""
        if depth > DEPTH:
            return frozenset()
        if (node, depth) not in self._resolved:
            self._resolved[node, depth] = self._resolve(node, depth)
        return self._resolved[node, depth]

    def _resolve(self, node: ast.AST, depth: int) -> frozenset[str]:
        if isinstance(node, ast.Name):
            return self._name(node.id, node)
        if isinstance(node, ast.Attribute):
            return self.attribute(self.dotted(node.value, depth + 1), node.attr)
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
        if name in self.own or name in self._arguments or name in self.stored:
            return frozenset()
        return frozenset(f"{star}.{name}" for star in self.stars)

    def attribute(self, bases: Iterable[str], name: str) -> frozenset[str]:
        """Return what an attribute may be: `os.sys.x` is `sys.x` too, as `os` imports `sys`."""
        names = {f"{base}.{name}" for base in bases}
        for base in bases:
            last = base.rpartition(".")[2]
            short = last.removeprefix("_") if base.partition(".")[0] in _STANDARD else last
            module = _SAME.get(last) or (short if short in _STANDARD else None)
            if module and base not in self.modules and not base.startswith(_SUBMODULES):
                names.add(f"{module}.{name}")
        return frozenset(names)

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
                names |= self.attribute([name.removesuffix(".__dict__")], key)
            elif name == "builtins":
                names.add(f"builtins.{key}")
        return frozenset(names)

    def _called(self, node: ast.Call, depth: int) -> frozenset[str]:
        names: set[str] = set()
        first = node.args[0] if node.args else None
        word = self.fold(first)
        for owner, attribute in self.gets(node, depth):
            if path := self.fold(attribute):
                bases = self.dotted(owner, depth + 1)
                for part in path.split("."):
                    bases = self.attribute(bases, part)
                names |= bases
        for name in self.dotted(node.func, depth + 1):
            if name in ("builtins.__import__", "importlib.__import__") and word:
                names.add(word.partition(".")[0])
            elif name in ("importlib.import_module", "pkgutil.resolve_name", "pydoc.locate") \
                    and word:
                names.add(word.replace(":", "."))
            elif name == "builtins.vars" and first is not None:
                names.update(f"{base}.__dict__" for base in self.dotted(first, depth + 1))
            elif name in ("builtins.globals", "builtins.locals", "builtins.vars"):
                names.add(f"{name.replace('vars', 'locals')}()")
            elif name.endswith((".get", ".__getitem__", ".pop")) \
                    and isinstance(node.func, ast.Attribute):
                names |= self._looked_up(node.func.value, word, depth)
        return frozenset(names)

    def gets(self, node: ast.Call, depth: int = 0) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Yield (object, name) of each attribute that a call looks up by name."""
        getter = node.func
        is_method = isinstance(getter, ast.Attribute) and getter.attr == "__getattribute__"
        if len(node.args) > 1 and (is_method or self.dotted(getter, depth + 1) & _GETTERS):
            yield node.args[0], node.args[1]
        elif isinstance(getter, ast.Attribute) and is_method and node.args:
            yield getter.value, node.args[0]
        elif isinstance(getter, ast.Call) and node.args and getter.args and self.dotted(
                getter.func, depth + 1) & {"operator.attrgetter", "operator.methodcaller"}:
            yield node.args[0], getter.args[0]

    def pattern(self, node: ast.AST | None) -> str:
        """Return the text that an expression evaluates to, HOLE for each part that is unknown."""
        value = self.constants.value(node)
        return value.decode("latin-1") if isinstance(value, bytes) \
            else value if isinstance(value, str) else HOLE

    def fold(self, node: ast.AST | None) -> str | None:
        """Return the text that an expression evaluates to, None if that needs running it."""
        text = self.pattern(node)
        return None if HOLE in text else text

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
        for _ in range(ROUNDS):
            for name, value in pairs:
                self._resolved.clear()  # aliases grow while they are bound
                for full in self.dotted(value):
                    if full not in ("builtins.globals()", "builtins.locals()"):
                        self._alias(name, full)
        self._resolved.clear()

    def _alias(self, name: str, full: str) -> None:
        known = self.aliases.setdefault(name, set())
        if len(known) < 16 and len(full) < 400:
            known.add(full)


def _assignments(node: ast.AST) -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        return [pair for target in node.targets for pair in _pairs(target, node.value)]
    if isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        return _pairs(node.target, node.value)
    if isinstance(node, ast.AugAssign):
        return _pairs(node.target, node)  # the name is no longer a constant
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return defaults(node)
    return []


def _pairs(target: ast.expr, value: ast.AST) -> list[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        return [(target.id, value if isinstance(value, ast.expr) else ast.Constant(value=None))]
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List) \
            and len(target.elts) == len(value.elts):
        return [pair for t, v in zip(target.elts, value.elts, strict=True) for pair in _pairs(t, v)]
    return []
