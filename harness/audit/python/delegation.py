"""Checks that a Triton candidate does the work itself: no library calls or fallbacks."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from harness.audit.findings.sighting import Sighting
from harness.audit.findings.watched_names import NAMES, below
from harness.audit.python.names import Module

_QUIET = frozenset({"torch.nn.functional.pad", "torch.ops.load_library"})
_HEADS = frozenset({"torch", "torch.Tensor", "numpy", "torch.autograd", "torch._VF", "torch._refs",
                    "torch._C._VariableFunctions", "torch._C.TensorBase", "torch._prims"})
_LAUNCHES = frozenset({"run", "warmup", "replay", "launch"})


class Path:
    """The nodes of a module that its entry point reaches by name; all of them without an entry."""

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
                if node in module.guarded or node in jit:
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
            or (isinstance(n.func, ast.Attribute) and n.func.attr in _LAUNCHES))]

    def library(self) -> Iterator[tuple[ast.AST, str]]:
        """Yield (node, name) of each use of a library's computation."""
        for node in self.nodes:
            if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
                yield node, "the @ operator"
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) \
                    and not isinstance(self.module.parents.get(node), ast.Attribute):
                yield from ((node, name) for name in _work(self.module.dotted(node)))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) \
                    and node.func.attr in NAMES["tensor_methods"] and not self.module.dotted(node.func):
                yield node, f"the tensor's own {node.func.attr}"
            elif isinstance(node, ast.Call):  # getattr(torch, "matmul") and the like
                yield from ((node, name) for name in _work(self.module.dotted(node)))


def scan(module: Module, entry: str | None, own: Iterable[str], reference: str) -> list[Sighting]:
    """Return the sightings of one source of a Triton target; `reference` is a function in it."""
    path = Path(module, entry)
    library = list(path.library())
    sightings = [_see(module, node, f"calls a library's computation: {name}")
                 for node, name in library]
    busy = {node for node, _ in library} | {n for n in path.nodes if _calls(n, reference)}
    sightings += [_see(module, node, "calls the reference") for node in busy
                  if _calls(node, reference)]
    computing = {n.name for n in module.functions() if any(c in busy for c in ast.walk(n))}
    for node in path.nodes:
        if isinstance(node, ast.Try) and _falls_back(node, busy, computing - {entry}):
            sightings.append(_see(module, node,
                                  "falls back to another implementation when it fails"))
    if entry in module.own and not path.launches() and not _borrows(path, frozenset(own)):
        sightings.append(Sighting(rule="delegation", severity="flag", file=module.file,
                                  what="no Triton kernel is launched on the entry's path"))
    return sightings


def is_jit(module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is compiled by Triton."""
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        for name in module.dotted(called):
            if name.startswith("triton.") and name.rpartition(".")[2] in ("jit", "aggregate"):
                return True
    return False


def _work(names: Iterable[str]) -> Iterator[str]:
    modules = NAMES["computing_modules"]
    for name in sorted(names):
        head, _, last = name.rpartition(".")
        if name in _QUIET:
            continue
        if (below(name, modules) and name not in modules) \
                or (head in _HEADS and last in NAMES["computations"]) \
                or (head == "torch.nn" and last not in NAMES["containers_of_nn"] and last[:1].isupper()) \
                or name == "torch.compile":
            yield name


def _calls(node: ast.AST, function: str) -> bool:
    return bool(function) and isinstance(node, ast.Call) and isinstance(node.func, ast.Name) \
        and node.func.id == function


def _falls_back(node: ast.Try, busy: set[ast.AST], computing: set[str]) -> bool:
    for handler in node.handlers:
        for statement in handler.body:
            for inner in ast.walk(statement):
                if inner in busy or (isinstance(inner, ast.Call)
                                     and isinstance(inner.func, ast.Name)
                                     and inner.func.id in computing):
                    return True
    return False


def _borrows(path: Path, own: frozenset[str]) -> bool:
    """Return whether the path uses a module of the project, which may launch the kernel."""
    return any(name.partition(".")[0] in own for node in path.nodes
               if isinstance(node, ast.Name) for name in path.module.dotted(node))


def _see(module: Module, node: ast.AST, what: str) -> Sighting:
    return Sighting(rule="delegation", severity="flag", what=what, file=module.file,
                    line=getattr(node, "lineno", 0), text=module.text(node))
