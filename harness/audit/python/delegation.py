"""Checks that a Triton candidate does the work itself: no library calls or fallbacks."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from harness.audit.findings.sighting import Sighting
from harness.audit.findings.watched_names import NAMES, AuditRule, below
from harness.audit.python.names import Module

_COMPUTES, _REFERENCE, _FALLS_BACK, _NO_LAUNCH = (AuditRule("delegation", "flag", why) for why in (
    "calls a library's computation", "calls the reference",
    "falls back to another implementation when it fails",
    "no Triton kernel is launched on the entry's path"))


class EntryPath:
    """The nodes outside kernels that a module's entry reaches by name; all if there is no entry."""

    def __init__(self, module: Module, entry: str | None) -> None:
        self.module = module
        named: dict[str, list[ast.AST]] = {}
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                named.setdefault(node.name, []).append(node)
        jit = {n for n in module.functions() if is_jit(module, n)}
        self.nodes: list[ast.AST] = []
        todo: list[ast.AST] = [n for n in module.tree.body if not isinstance(
            n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
        names = [entry] if entry in named else list(named)
        todo += [node for name in names if name for node in named[name]]
        reached: set[ast.AST] = set(todo)
        while todo:
            top = todo.pop()
            stack = [top]
            while stack:
                node = stack.pop()
                if node in module.in_main or node in jit:
                    continue
                self.nodes.append(node)
                stack += [c for c in ast.iter_child_nodes(node) if c not in reached or c is top]
                word = node.id if isinstance(node, ast.Name) else \
                    node.attr if isinstance(node, ast.Attribute) else None
                for other in named.get(word or "", []):
                    if other not in reached:
                        reached.add(other)
                        todo.append(other)

    def launches(self) -> list[ast.Call]:
        """Return the calls that look like a kernel launch, such as `kernel[grid](...)`."""
        return [n for n in self.nodes if isinstance(n, ast.Call) and (
            isinstance(n.func, ast.Subscript)
            or (isinstance(n.func, ast.Attribute) and n.func.attr in NAMES["launches"]))]

    def library(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield (node, name) of each use of a library's computation."""
        for node in self.nodes:
            if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
                yield node, "the @ operator"
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) \
                    and not isinstance(self.module.parents.get(node), ast.Attribute):
                yield from ((node, name) for name in _computations(self.module.dotted(node))
                            if not self._counts_elements(node, name))
            elif isinstance(node, ast.Call):
                if isinstance(node.func, ast.Attribute) and not self.module.dotted(node.func) \
                        and node.func.attr in NAMES["tensor_methods"]:
                    yield node, f"the tensor's own {node.func.attr}"
                else:  # getattr(torch, "matmul") and the like
                    yield from ((node, name) for name in _computations(self.module.dotted(node)))

    def _counts_elements(self, node: ast.AST, name: str) -> bool:
        """Return whether a name is called as in `np.prod(x.shape[1:])`."""
        call = self.module.parents.get(node)
        return name == "numpy.prod" and isinstance(call, ast.Call) and call.func is node \
            and len(call.args) == 1 and _is_shape(call.args[0])


def _is_shape(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return _is_shape(node.value)
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def scan(module: Module, entry: str | None, project: Iterable[str],
         reference: str) -> list[Sighting]:
    """Return the sightings of one source of a Triton target.

    `reference` names the reference's function if that is in this source, else it is "". `project`
    are the top-level names of the project's modules.
    """
    path = EntryPath(module, entry)
    library = list(path.library())
    references = {n for n in path.nodes if reference and _called(n) == reference}
    busy = {node for node, _ in library} | references
    computing = {n.name for n in module.functions() if not busy.isdisjoint(ast.walk(n))} - {entry}
    sightings = [module.see(node, _COMPUTES, name) for node, name in library]
    sightings += [module.see(node, _REFERENCE) for node in references]
    sightings += [module.see(node, _FALLS_BACK) for node in path.nodes if isinstance(node, ast.Try)
                  and any(inner in busy or _called(inner) in computing for handler in node.handlers
                          for part in handler.body for inner in ast.walk(part))]
    borrowed = (name.partition(".")[0] for node in path.nodes if isinstance(node, ast.Name)
                for name in module.dotted(node))  # a module of the project may launch the kernel
    if entry in module.own and not path.launches() and not set(project) & set(borrowed):
        sightings.append(module.see(module.tree, _NO_LAUNCH))
    return sightings


def is_jit(module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is compiled by Triton."""
    return any(name.startswith("triton.") and name.rpartition(".")[2] in ("jit", "aggregate")
               for name in module.decorators(function))


def _called(node: ast.AST) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def _computations(names: Iterable[str]) -> Iterator[str]:
    modules = NAMES["computing_modules"]
    for name in sorted(set(names) - {"torch.nn.functional.pad", "torch.ops.load_library"}):
        head, _, last = name.rpartition(".")
        layer = head == "torch.nn" and last[:1].isupper() and last not in NAMES["containers_of_nn"]
        if layer or (below(name, modules) and name not in modules) or name == "torch.compile" \
                or (head in NAMES["computing"] and last in NAMES["computations"]):
            yield name
