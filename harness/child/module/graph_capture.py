"""Captures what `Model.forward` computes: the calls of torch functions, with shapes and dtypes.

Talks JSON lines over a socket; `capture` is the only request. The forward pass runs once on torch's
`meta` device, without memory, under a TorchFunctionMode that records each outermost call, so that
control flow and shapes are those of this run. Standard library and torch.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from ..channel import serve
from ..run.import_tree import import_file, module_of
from .value_sizes import sizes_of_values


class Untraceable(ValueError):
    """The forward pass cannot be recorded; the message says why."""


class CallRecorder(TorchFunctionMode):
    """Records the outermost torch calls in a `with` block, and which torch.nn layer made them."""

    def __init__(self, model: Any, inputs: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.nodes: list[dict[str, Any]] = []
        self.layers: list[dict[str, Any]] = []
        self._layer: int | None = None
        self._names: dict[int, dict[str, Any]] = {}
        self._alive: list[Any] = []
        for name, value in inputs.items():
            self._name_leaves(value, {"input": name})
        self._attributes: dict[int, str] = {}
        for path, module in model.named_modules():
            for kind in (module._parameters, module._buffers, vars(module)):
                for name, value in kind.items():
                    if isinstance(value, torch.Tensor):
                        self._attributes[id(value)] = f"{path}.{name}" if path else name
                        self._alive.append(value)
        self._paths = {id(module): path for path, module in model.named_modules() if path}

    def _name_leaves(self, value: Any, name: dict[str, Any]) -> None:
        if isinstance(value, torch.Tensor):
            self._names[id(value)] = name
            self._alive.append(value)
        elif isinstance(value, list | tuple):
            for index, part in enumerate(value):
                self._name_leaves(part, {**name, "item": index})

    def __torch_function__(self, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        positional = [self.encoded(value) for value in args]
        named = {name: self.encoded(value) for name, value in kwargs.items()}
        bound = {name: self.encoded(value) for name, value in bind(function, args, kwargs).items()}
        versions = {id(value): value._version for value in args if isinstance(value, torch.Tensor)}
        result = function(*args, **kwargs)
        if id(result) in versions and result._version == versions[id(result)]:
            return result  # such as x.contiguous() of a contiguous tensor
        results = list(result) if isinstance(result, list | tuple) else [result]
        if function is torch.Tensor.__setitem__:
            results = [args[0]]
        if not any(isinstance(value, torch.Tensor) for value in results):
            return result
        written = next((self.encoded(value) for value in args if value is results[0]), None)
        name = f"n{len(self.nodes)}"
        self.nodes.append({
            "name": name, "target": target_name(function), "args": positional,
            "kwargs": named, "bound": bound, "outputs": [described(value) for value in results],
            "several": isinstance(result, list | tuple), "written": written, "layer": self._layer})
        self._name_leaves(results[0] if result is None else result, {"node": name})
        return result

    @contextlib.contextmanager
    def watching_layers(self) -> Iterator[None]:
        """Record which calls belong to one call of a layer of torch.nn."""
        before = torch.nn.modules.module.register_module_forward_pre_hook(self._enter)
        after = torch.nn.modules.module.register_module_forward_hook(self._leave)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _enter(self, module: Any, args: Any) -> None:
        if self._layer is None and id(module) in self._paths \
                and type(module).__module__.startswith("torch.nn.modules") \
                and not list(module.children()):
            self._layer = len(self.layers)
            self.layers.append({"path": self._paths[id(module)], "kind": type(module).__name__,
                                "args": [self.encoded(value) for value in args], "id": id(module)})

    def _leave(self, module: Any, args: Any, result: Any) -> None:
        if self._layer is not None and self.layers[self._layer]["id"] == id(module):
            self.layers[self._layer]["result"] = self.encoded(result)
            self._layer = None

    def encoded(self, value: Any) -> Any:
        """Return a value as JSON: a tensor by the name of what made it."""
        if isinstance(value, torch.Tensor):
            if id(value) in self._names:
                return self._names[id(value)]
            if id(value) in self._attributes:
                return {"attribute": self._attributes[id(value)]}
            raise Untraceable("forward uses a tensor that no recorded call made")
        if isinstance(value, bool | int | str) or value is None:
            return value
        if isinstance(value, float):
            return {"float": repr(value)}
        if isinstance(value, torch.Size | list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.encoded(part) for part in value]}
        if type(value) is dict and all(isinstance(key, str) for key in value):
            return {"dict": [[key, self.encoded(part)] for key, part in value.items()]}
        if isinstance(value, slice):
            return {"slice": [self.encoded(part) for part in (value.start, value.stop, value.step)]}
        if value is Ellipsis or isinstance(value, torch.dtype | torch.device | torch.memory_format):
            return {"code": "..." if value is Ellipsis else
                    f"torch.device({str(value)!r})" if isinstance(value, torch.device) else
                    str(value)}
        raise Untraceable(f"forward passes or returns a {type(value).__name__}")

    def answer(self, result: Any) -> dict[str, Any]:
        used = {path: described(value) for value in self._alive
                if (path := self._attributes.get(id(value)))}
        for layer in self.layers:
            layer.pop("id")
        return {"nodes": self.nodes, "layers": self.layers, "attributes": used,
                "result": self.encoded(result)}


def target_name(function: Any) -> str:
    """Return the name by which a source calls a function; torch cannot name all of its own."""
    name = function.__name__
    return resolve_name(function) or (
        f"torch.{name}" if getattr(torch, name, None) is function else name)


def bind(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by the names of PyTorch's documentation, with defaults.

    A builtin has no signature; the first ATen overload that takes these arguments gives the names.
    Without one, the result is empty.
    """
    name = (resolve_name(function) or "").rpartition(".")[2]
    with contextlib.suppress(ValueError, TypeError):
        signature = inspect.signature(getattr(torch.nn.functional, f"_{name}", function)
                                      if "max_pool" in name else function)
        if all(each.kind != each.VAR_POSITIONAL for each in signature.parameters.values()):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return {"input" if name == "self" else name: value
                    for name, value in bound.arguments.items()}
    name = function.__name__
    name = OPERATORS.get(name.strip("_"), name.strip("_")) if name.startswith("__") else \
        name.rstrip("_")
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        if (values := _bound(schema, args, kwargs)) is not None:
            return {"input" if each == "self" else each: value for each, value in values.items()}
    return {}


OPERATORS = {"truediv": "div", "rtruediv": "div", "radd": "add", "rmul": "mul", "rdiv": "div",
             "iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div"}


def _bound(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    names = [argument.name for argument in schema.arguments]
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    values = {("self" if name == "input" else name): value for name, value in kwargs.items()}
    if len(args) > len(positional) or not values.keys() <= set(names[len(args):]):
        return None
    values |= dict(zip(names, args, strict=False))
    for argument in schema.arguments:
        if argument.name not in values:
            if not argument.has_default_value():
                return None
            values[argument.name] = argument.default_value
        elif not _accepts(str(argument.type), values[argument.name]):
            return None
    return {name: values[name] for name in names}


def _accepts(kind: str, value: Any) -> bool:
    """Return whether a value may be an argument of an ATen type, by its name."""
    if value is None:
        return kind.startswith("Optional")
    plain = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Opt") else kind
    if isinstance(value, torch.Tensor):
        return plain == "Tensor"
    if isinstance(value, list | tuple):
        return plain.startswith("List")
    if isinstance(value, str):
        return plain == "str"
    if plain == "bool":
        return isinstance(value, bool)
    return plain not in ("Tensor", "str") and (not plain.startswith("List") or plain == "List[int]")


def described(value: Any) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor):
        return {"dtype": "none", "shape": []}
    return {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}


def capture(job: dict[str, Any]) -> dict[str, Any]:
    """Return the graph of the source's Model on arguments of the task's shapes."""
    adapter = getattr(module_of("kopt_adapter", job["adapter"]), job["adapter_function"])
    module: Any = import_file(job["artifact"], job["root"])
    answers: list[dict[str, Any]] = []

    class Recorded(module.Model):  # type: ignore[misc]
        def forward(self, *args: Any) -> Any:
            names = list(inspect.signature(module.Model.forward).parameters)[1:]
            inputs = dict(zip(names, args, strict=False))
            recorder = CallRecorder(self, inputs)
            with torch.no_grad(), recorder.watching_layers(), recorder:
                result = module.Model.forward(self, *args)
            answers.append({**recorder.answer(result), "parameters": names, "inputs": {
                name: recorder.encoded(value) if not isinstance(value, torch.Tensor)
                else described(value) for name, value in inputs.items()}})
            return result

    module.ModelNew = Recorded
    tensors = [torch.empty(each["shape"], dtype=getattr(torch, each["dtype"]), device="meta")
               for each in job["tensors"]]
    try:
        with torch.device("meta"), sizes_of_values():
            adapter(module, *tensors)
    except Untraceable:
        raise
    except Exception:
        if answers:  # forward returned; only the adapter's work on the result failed
            return answers[-1]
        adapter(module, *tensors)
    return answers[-1]


def main(descriptor: int) -> None:
    serve(descriptor, capture)
