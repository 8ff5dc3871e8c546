"""How tensors, kept values and cache keys flow through a Python source, from name to name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.audit.findings.watched_names import NAMES
from harness.audit.python.names import Module
from harness.audit.python.source_tree import Function, defaults, parameters, root

ROUNDS = 5
MUTABLE = ast.Dict | ast.List | ast.Set | ast.Call
"""A parameter's default that is one of these outlives a call."""
_FLOWS = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension, ast.Call,
          ast.Return, ast.Lambda)


@dataclass(frozen=True)
class Probe:
    """One part of a key: how it identifies a tensor (`id`, `data_ptr`, ...), and which one."""

    kind: str
    args: frozenset[str]


class Flow:
    """What each name of a module may hold, per function scope."""

    def __init__(self, module: Module, entry: str | None, args: tuple[str | None, ...]) -> None:
        self.module, self.args = module, args
        self.scopes: dict[ast.AST, Function | None] = {}
        self.functions = {f.name: f for f in module.functions()}
        self.origin: dict[tuple[Function | None, str], set[str]] = {}
        self.exact: set[tuple[Function | None, str]] = set()
        self.kept: set[tuple[Function | None, str]] = set()
        self.tainted: dict[tuple[Function | None, str], set[Probe]] = {}
        self.returned: dict[str, set[tuple[str, str]]] = {}
        self.rebound = {name for n in module.nodes if isinstance(n, ast.Global | ast.Nonlocal)
                        for name in n.names}
        self.globals = {n.id for n in module.nodes if isinstance(n, ast.Name)
                        and isinstance(n.ctx, ast.Store) and self._scope(n) is None} | self.rebound
        self.locals: dict[Function, set[str]] = {}
        for node in module.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                for function in module.enclosing(node):
                    self.locals.setdefault(function, set()).add(node.id)
        self.flowing = [n for n in module.nodes if isinstance(n, _FLOWS)]
        self.names: dict[ast.AST, list[ast.Name]] = {}
        if entry in self.functions:
            self._bind_entry(self.functions[entry])
        for _ in range(2):  # the second pass knows all arguments
            self.tainted.clear()
            for _ in range(ROUNDS):
                known = self._known()
                for node in self.flowing:
                    self._flow(node)
                if self._known() == known:
                    break

    def _known(self) -> int:
        """Return a count that grows whenever something becomes known."""
        return len(self.exact) + len(self.kept) + sum(len(values) for known in (
            self.origin, self.tainted, self.returned) for values in known.values())

    def _names_in(self, node: ast.AST) -> list[ast.Name]:
        if node not in self.names:
            self.names[node] = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        return self.names[node]

    def _scope(self, node: ast.AST) -> Function | None:
        if node not in self.scopes:
            self.scopes[node] = next((function for function in self.module.enclosing(node)
                                      if not isinstance(function, ast.Lambda)), None)
        return self.scopes[node]

    def _bind_entry(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        for name, arg in zip(positional, self.args, strict=False):
            if arg is not None:
                self._record_origin(function, name, {arg}, True)
        if (rest := function.args.vararg) is not None:
            others = {a for a in self.args[len(positional):] if a}
            self._record_origin(function, rest.arg, others, False)

    def _record_origin(self, scope: Function | None, name: str, args: Iterable[str],
                       is_tensor: bool) -> None:
        self.origin.setdefault((scope, name), set()).update(args)
        if is_tensor:
            self.exact.add((scope, name))

    def _flow(self, node: ast.AST) -> None:
        """Propagate arguments, kept values and keys through one statement or call."""
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.For | ast.comprehension):
            self._assign(node.target, node.iter)
        elif isinstance(node, ast.Call):
            self._pass_arguments(node)
        elif isinstance(node, ast.Return | ast.Lambda):
            self._return(node)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts):
                for element, part in zip(target.elts, value.elts, strict=True):
                    self._assign(element, part)
            else:
                for element in target.elts:
                    self._assign(element, value)
            return
        if not isinstance(target, ast.Name):
            return
        scope = self._scope(target)
        if args := self._args_of(value):
            self._record_origin(scope, target.id, args, self._is_tensor(value))
        if scope is not None and self._is_kept(value):
            self.kept.add((scope, target.id))
        if probes := set(self._probes(value)):
            self.tainted.setdefault((scope, target.id), set()).update(probes)

    def _pass_arguments(self, node: ast.Call) -> None:
        callee = self.functions.get(last_name(node.func))
        if callee is None:
            return
        names = parameters(callee)
        if names[:1] in (["self"], ["cls"]) and isinstance(node.func, ast.Attribute):
            names = names[1:]
        arguments = [*zip(names, node.args, strict=False),
                     *((k.arg, k.value) for k in node.keywords if k.arg)]
        for name, value in arguments:
            if args := self._args_of(value):
                self._record_origin(callee, name, args, self._is_tensor(value))
            if isinstance(value, ast.Name | ast.Attribute) and self._is_kept(value):
                self.kept.add((callee, name))

    def _return(self, node: ast.Return | ast.Lambda) -> None:
        value = node.body if isinstance(node, ast.Lambda) else node.value
        function = self._scope(node)
        if value is None or function is None or isinstance(function, ast.Lambda):
            return
        names = parameters(function)
        for inner in ast.walk(value):
            for kind, subject in self._direct(inner):
                base = root(subject)
                if isinstance(base, ast.Name) and base.id in names:
                    self.returned.setdefault(function.name, set()).add((kind, base.id))

    def _args_of(self, node: ast.AST) -> set[str]:
        """Return the task's arguments that an expression depends on."""
        args: set[str] = set()
        for inner in self._names_in(node):
            if isinstance(inner.ctx, ast.Load):
                args |= self.origin.get((self._scope(inner), inner.id), set())
        return args

    def _is_tensor(self, node: ast.AST) -> bool:
        """Return whether an expression is one of the arguments or a view of it."""
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                node = node.func
            if isinstance(node, ast.Call) or (
                    isinstance(node, ast.Attribute) and node.attr not in NAMES["views"]):
                return False
            node = node.value
        return isinstance(node, ast.Name) and (self._scope(node), node.id) in self.exact

    def _is_kept(self, node: ast.AST) -> bool:
        """Return whether an expression reads a value that outlives the call."""
        for inner in self._names_in(node):
            name, scope = inner.id, self._scope(inner)
            if (scope, name) in self.kept:
                return True
            if self.module.aliases.get(name) or scope is None:
                continue
            if name in parameters(scope):
                parent = self.module.parents.get(inner)
                if (name in ("self", "cls") and isinstance(parent, ast.Attribute)) \
                        or isinstance(dict(defaults(scope)).get(name), MUTABLE):
                    return True
            elif (name in self.globals and not self._is_local(scope, name)) \
                    or self._outer_local(scope, name) \
                    or (name in self.functions
                        and isinstance(self.module.parents.get(inner), ast.Attribute)):
                return True
        return False

    def _is_local(self, function: Function, name: str) -> bool:
        return name not in self.rebound and name in self.locals.get(function, ())

    def _outer_local(self, function: Function, name: str) -> bool:
        """Return whether a name belongs to an enclosing function, so that a closure keeps it."""
        if self._is_local(function, name):
            return False
        return any(name in parameters(outer) or self._is_local(outer, name)
                   for outer in self.module.enclosing(function))

    def _direct(self, node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
        """Yield (kind, subject) if a node itself reads a tensor's identity."""
        if isinstance(node, ast.Call):
            names = self.module.dotted(node.func)
            if node.args and "builtins.id" in names:
                yield "id", node.args[0]
            elif isinstance(node.func, ast.Attribute) and node.func.attr == "data_ptr":
                yield "data_ptr", node.args[0] if names and node.args else node.func.value
            elif node.args and "builtins.hash" in names and self._is_tensor(node.args[0]):
                yield "hash", node.args[0]
            elif len(node.args) > 1 and "builtins.getattr" in names \
                    and (word := self.module.fold(node.args[1])) in ("_version", "data_ptr"):
                yield word or "", node.args[0]
            elif isinstance(node.func, ast.Attribute) and node.func.attr in NAMES["contents"] \
                    and self._args_of(node.func.value) and not node.args:
                yield "contents", node.func.value
        elif isinstance(node, ast.Attribute) and node.attr == "_version":
            yield "_version", node.value

    def _probes(self, node: ast.AST) -> Iterator[Probe]:
        """Yield the probes that an expression contributes to a key."""
        direct = list(self._direct(node))
        if direct:
            for kind, subject in direct:
                if (probe := self._probe(kind, subject)) is not None:
                    yield probe
            return
        if isinstance(node, ast.Name):
            yield from self.tainted.get((self._scope(node), node.id), ())
        elif isinstance(node, ast.Call):
            name = last_name(node.func)
            for kind, parameter in self.returned.get(name, ()):
                names = parameters(self.functions[name])
                at = names.index(parameter)
                if at < len(node.args) and (p := self._probe(kind, node.args[at])) is not None:
                    yield p
            if name in NAMES["key_builders"] or name[:1].isupper():
                for part in (*node.args, *(k.value for k in node.keywords)):
                    yield from self._probes(part)
        elif isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Add | ast.BitXor | ast.BitOr | ast.Mult | ast.LShift):
                yield from (*self._probes(node.left), *self._probes(node.right))
        elif isinstance(node, ast.Tuple | ast.List | ast.Set | ast.JoinedStr | ast.FormattedValue
                        | ast.Starred | ast.ListComp | ast.GeneratorExp | ast.SetComp
                        | ast.NamedExpr | ast.IfExp):
            for child in ast.iter_child_nodes(node):
                yield from self._probes(child)

    def _probe(self, kind: str, subject: ast.AST) -> Probe | None:
        if args := self._args_of(subject):
            return Probe(kind, frozenset(args))
        base = root(subject)
        if isinstance(base, ast.Name):
            if base.id in self.functions or self.module.aliases.get(base.id):
                return None
            if base.id in ("self", "cls") and isinstance(subject, ast.Attribute):
                return Probe(kind, frozenset({subject.attr}))
            return Probe(kind, frozenset({base.id}))
        return Probe(kind, frozenset())


def last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
