"""The graph of a module's forward pass, as a guarded process captured it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.errors import InputError
from harness.isolation.confinement import Confine
from harness.isolation.guard import clean_env
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.isolation.zygote_client import Zygote
from harness.tasks.target import Target

PROGRAM = "module.graph_capture"
SAME = {"mat2": "other"}
"""Argument names of ATen, and what similar functions of PyTorch call these arguments."""
VIEWS = frozenset((
    "chunk", "split", "view", "reshape", "flatten", "transpose", "permute", "t", "__getitem__",
    "squeeze", "unsqueeze", "expand", "diagonal", "narrow", "select", "unbind", "detach"))
"""Functions that usually move nothing."""
LIMITS = Limits(wall_s=120.0, output_bytes=1 << 20, memory_bytes=32 << 30)


class TensorForm(msgspec.Struct, frozen=True, kw_only=True):
    dtype: str
    shape: tuple[int, ...]

    def dim(self) -> int:
        """Return the number of dimensions; conditions of templates call it by PyTorch's name."""
        return len(self.shape)

    def size(self, dim: int) -> int:
        return self.shape[dim]

    def is_floating_point(self) -> bool:
        return "float" in self.dtype

    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Ref:
    """A tensor of the graph: an input, an attribute of the module, or an output of a node."""

    kind: Literal["input", "node", "attribute"]
    name: str
    item: int | None = None


@dataclass(frozen=True)
class SourceCode:
    """An argument that stands in the rewritten source as it is: a dtype, a slice."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """One call of a torch function. Arguments are Refs, constants, SourceCodes, or lists of them.

    `bound` has all arguments by name, with defaults; it is empty where they are not known.
    """

    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    bound: dict[str, Any]
    outputs: tuple[TensorForm, ...]
    several: bool
    written: Ref | None
    layer: int | None

    @property
    def form(self) -> TensorForm:
        return self.outputs[0]

    @cached_property
    def reads(self) -> tuple[Ref, ...]:
        return tuple(refs_of((self.args, tuple(self.kwargs.values()))))


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One call of a layer of torch.nn, by its path in the module."""

    path: str
    kind: str
    args: tuple[Any, ...]
    result: Any


@dataclass(frozen=True, kw_only=True)
class ModuleGraph:
    """Calls in their order; `inputs` are tensors' forms or the constants that forward gets."""

    nodes: tuple[Node, ...]
    layers: tuple[Layer, ...]
    attributes: dict[str, TensorForm]
    parameters: tuple[str, ...]
    inputs: dict[str, Any]
    result: Any

    def form(self, ref: Ref) -> TensorForm:
        if ref.kind == "attribute":
            return self.attributes[ref.name]
        if ref.kind == "input":
            form = self.inputs[ref.name]
            assert isinstance(form, TensorForm)
            return form
        return self.node(ref.name).outputs[ref.item or 0]

    def node(self, name: str) -> Node:
        return self.nodes[int(name[1:])]

    def ordered(self, names: Iterable[str]) -> tuple[Node, ...]:
        """Return the nodes with some names in the order in which they are computed."""
        return tuple(map(self.node, sorted(names, key=lambda name: int(name[1:]))))

    @cached_property
    def readers(self) -> dict[Ref, list[Node]]:
        """The nodes that read each tensor, in their order."""
        readers: dict[Ref, list[Node]] = {}
        for node in self.nodes:
            for ref in dict.fromkeys(node.reads):
                readers.setdefault(ref, []).append(node)
        return readers

    @cached_property
    def _users(self) -> dict[str, list[Node]]:
        users: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(ref.name for ref in node.reads if ref.kind == "node"):
                users.setdefault(name, []).append(node)
        return users

    @cached_property
    def unsteady(self) -> set[str]:
        """The nodes that read a tensor which the forward pass writes, or a view of it.

        They must stay where they are.
        """
        written = {node.written for node in self.nodes if node.written is not None}
        names = set[str]()
        for node in self.nodes if written else ():
            if any(ref in written for ref in node.reads):
                names.add(node.name)
                if node.target.rpartition(".")[2] in VIEWS:
                    written |= {Ref("node", node.name), *(
                        Ref("node", node.name, item) for item in range(len(node.outputs)))}
        return names

    def users(self, name: str) -> list[Node]:
        return self._users.get(name, [])

    def before(self, names: Iterable[str],
               follows: Callable[[Ref], bool] = lambda ref: True) -> set[str]:
        """Return the named nodes, and all that they depend on through refs that pass `follows`."""
        reached, waiting = set[str](), list(names)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += [ref.name for ref in self.node(name).reads
                            if ref.kind == "node" and follows(ref)]
        return reached

    def items_used(self, name: str) -> set[int]:
        """Return which of a node's several results are read or returned."""
        return {ref.item or 0 for ref in refs_of(
            [self.result, *(list(user.reads) for user in self.users(name))])
            if ref.kind == "node" and ref.name == name}

    def returned(self) -> set[str]:
        return {ref.name for ref in refs_of(self.result) if ref.kind == "node"}


def refs_of(value: Any) -> Iterator[Ref]:
    """Yield the tensors in an argument."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from refs_of(part)


def capture(target: Target, tree: Path, baseline: Path, scratch: Path, *,
            python: str | None = None, zygote: Zygote | None = None) -> ModuleGraph:
    """Capture a tree's module by a run on tensors without memory. Raises InputError."""
    tensors = [{"shape": tensor.shape, "dtype": tensor.dtype}
               for tensor in target.tensors(target.classes[0])]
    try:
        with Peer(PROGRAM, cwd=tree, limits=LIMITS, python=python, env=clean_env(home=scratch),
                  zygote=zygote, confine=Confine(writable=(str(scratch),))) as child:
            answer = child.ask(
                "capture", artifact=str(tree / target.source), root=str(tree), tensors=tensors,
                adapter=str(baseline / target.adapter_file),
                adapter_function=target.adapter_function)
    except (PeerError, PeerDied) as error:
        raise InputError(error.what.removeprefix("Untraceable: "), where=target.source) from None
    try:
        return _graph(answer)
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise InputError(f"the captured graph is not usable: {error}",
                         where=target.source) from None


def _graph(answer: dict[str, Any]) -> ModuleGraph:
    nodes = tuple(Node(
        name=str(each["name"]), target=str(each["target"]),
        args=tuple(map(_value, each["args"])), outputs=tuple(map(_form, each["outputs"])),
        kwargs={str(name): _value(value) for name, value in each["kwargs"].items()},
        bound={SAME.get(name, name): _value(value) for name, value in each["bound"].items()},
        several=bool(each["several"]), layer=each["layer"],
        written=None if each["written"] is None else _value(each["written"]))
        for each in answer["nodes"])
    layers = tuple(Layer(path=str(each["path"]), kind=str(each["kind"]),
                         args=tuple(map(_value, each["args"])), result=_value(each.get("result")))
                   for each in answer["layers"])
    return ModuleGraph(
        nodes=nodes, layers=layers, parameters=tuple(map(str, answer["parameters"])),
        attributes={str(name): _form(form) for name, form in answer["attributes"].items()},
        inputs={str(name): _form(value) if isinstance(value, dict) and "shape" in value
                else _value(value) for name, value in answer["inputs"].items()},
        result=_value(answer["result"]))


def _form(value: Any) -> TensorForm:
    return msgspec.convert(value, TensorForm)


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items()))
    if kind in ("input", "node", "attribute"):
        return Ref(kind, str(content), value.get("item"))
    if kind == "float":
        return float(content)
    if kind == "list":
        return list(map(_value, content))
    if kind == "tuple":
        return tuple(map(_value, content))
    if kind == "dict":
        return {str(key): _value(part) for key, part in content}
    if kind == "slice":
        return SourceCode(f"slice({', '.join(map(repr, map(_value, content)))})")
    return SourceCode(str(content))
