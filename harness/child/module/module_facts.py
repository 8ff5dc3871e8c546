"""Learns what a task states about a PyTorch module: arguments, weights, outputs, value ranges.

Talks JSON lines over a socket; `learn` is the only request. Shapes are learned on torch's `meta`
device, which has no memory; values from a real call at small sizes. Standard library and torch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..channel import serve
from ..one_line import one_line
from .input_ranges import InputRanges
from .problem_source import (
    LITERALS,
    Layout,
    Problem,
    ProblemSource,
    Size,
    Unsupported,
    in_mode,
    leaves,
)
from .value_sizes import ChoiceWatch, sizes_of_values

CAPS = (1024, 512, 256, 128, 64, 32, 16, 8)
DIVISORS = (2, 4, 8, 16, 32, 64)
"""For sizes that depend on each other, such as a width and its double."""
SMALL_BYTES, SMALL_FLOPS = 2 << 20, 50_000_000
"""The most bytes and operations of one call with which a verdict on a CPU takes seconds."""
MOST_COST = 64.0
"""Limit of the smallest call that works, as a multiple of SMALL_BYTES and SMALL_FLOPS."""


class ModuleLearner:
    """The facts of one file; `notes` are remarks for the person."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.source = ProblemSource(job["path"])
        self.notes: list[str] = []
        requested = {name: tuple(value) if isinstance(value, list) else value
                     for name, value in job["sizes"].items()}
        for value in self.source.open(requested).init():
            _check_literal(value)
        declared = self.source.open({}).sizes
        small = self._small(declared, requested)
        is_too_large = small is None and self._cost(requested) > MOST_COST
        if (is_too_large or set(requested) - set(declared)) and self.source.name_numbers():
            declared = self.source.open({}).sizes
            small = self._small(declared, requested)
        if unknown := sorted(set(requested) - set(declared)):
            raise Unsupported(f"no size {unknown[0]!r}: sizes are {', '.join(declared) or 'none'}")
        self.sizes = {**requested, **(small or {})} if job["small"] else requested
        if job["small"] and small is None and self._cost(requested) > 1:
            self.notes.append("no smaller sizes work: all " + "other " * bool(requested)
                              + "sizes stay as they are")
        self.declared = declared
        self.real = self.source.open({**requested, **(small or {})})
        self.problem = self.source.open(self.sizes)
        if small is None and (cost := self._cost(requested)) > MOST_COST:
            raise Unsupported(f"a call is too large to try here; its sizes: {', '.join(declared)}"
                              if cost < math.inf else one_line_of(lambda: _outline(self.problem)))

    def _small(self, declared: dict[str, Size],
               requested: dict[str, Size]) -> dict[str, Size] | None:
        """Return sizes with which a call is small, the smallest that work; None if none do."""
        free = {name: value for name, value in declared.items() if name not in requested}
        best, least = dict(free), self._cost({**requested, **free})
        for shrink in (*(partial(_capped, cap=cap) for cap in CAPS),
                       *(partial(_divided, divisor=divisor) for divisor in DIVISORS)):
            if least <= 1:
                break
            sizes = {name: shrink(value) for name, value in free.items()}
            if (cost := self._cost({**requested, **sizes}, empty=math.inf)) < least:
                best, least = sizes, cost
        has_halved = True
        while has_halved and least > 1:  # some sizes cannot shrink, or not together
            has_halved = False
            for name in sorted(best, key=lambda name: _largest(best[name]), reverse=True):
                floor = 1 if "batch" in name.lower() else CAPS[-1]
                sizes = {**best, name: _capped(best[name], max(floor, _largest(best[name]) // 2))}
                if least > 1 and (
                        cost := self._cost({**requested, **sizes}, empty=math.inf)) < least:
                    best, least, has_halved = sizes, cost, True
        changed = {name: value for name, value in best.items() if value != declared[name]}
        return changed if changed and least <= MOST_COST else None

    def _cost(self, sizes: dict[str, Size], empty: float = 0.0) -> float:
        """Return the bytes or operations of a call, as multiples of the small limits.

        A call with an empty result costs at least `empty`.
        """
        try:
            _, returned, moved, flops, _ = _outline(self.source.open(sizes))
        except Exception:
            return math.inf
        return max(empty if any(not value.numel() for value in leaves(returned)) else 0.0,
                   moved / SMALL_BYTES, (flops or 0) / SMALL_FLOPS)

    def learn(self, training: bool | None) -> dict[str, Any]:
        inputs = self.problem.inputs("meta")
        layout = Layout(self.problem, inputs)
        model, returned, moved, flops, chooses = _outline(self.problem)
        if chooses:  # a floor that counts all experts would refuse a kernel that skips some
            moved -= sum(value.numel() * value.element_size() for value in model.parameters())
            flops = None
            self.notes.append("it selects by values (top k): its roofline does not count "
                              "operations and weights")
        training, changed, written = self._behaviour(training)
        weights = dict(model.named_parameters())
        weights |= {name: buffer for name, buffer in model.named_buffers() if name in written or (
            name in model.state_dict() and name not in changed and buffer.is_floating_point())}
        positional, named = self.problem.init()
        dims = self._named_dims(layout)
        used = {dim for shape in dims.values() for dim in shape if isinstance(dim, str)}
        ranges = InputRanges(self.source, self.problem, self.real).learn(
            layout, weights, used, training=training)
        args = [{"name": name, "dtype": _dtype(value), "shape": dims[name], **ranges[name],
                 "weight": False, "written": False} for name, value in layout.tensors.items()]
        args += [{"name": name, "dtype": _dtype(value), "shape": list(value.shape), **ranges[name],
                  "weight": True, "written": name in written} for name, value in weights.items()]
        if not args:
            raise Unsupported("get_inputs gives no tensors and the model has no weights")
        return {"args": args, "call": layout.call, "init": repr(positional),
                "init_named": repr(named), "weights": list(weights), "training": training,
                "sizes": {name: self.problem.sizes[name] for name in sorted(used)},
                "all_sizes": {name: [_listed(value), _listed(self.problem.sizes[name])]
                              for name, value in self.declared.items()},
                "outputs": [{"dtype": _dtype(value), "shape": list(value.shape)}
                            for value in leaves(returned)],
                "names": sorted(map(str, returned)) if isinstance(returned, dict) else [],
                "bytes": moved, "flops": flops, "float64": self._has_float64(training),
                "notes": self.notes}

    def _behaviour(self, training: bool | None) -> tuple[bool, set[str], set[str]]:
        """Return whether to use training mode, and two sets of buffers' names.

        A call in the chosen mode changes the first; the second are those of them with floats that
        it writes in place.
        """
        inputs = self.real.inputs("cpu")
        shapes = [value.shape for value in leaves(_outline(self.real)[1])]
        for mode in ((True, False) if training is None else (training,)):
            model = in_mode(self.real.model("cpu"), mode)
            before = copy.deepcopy(dict(model.named_buffers()))
            results = [leaves(copy.deepcopy(model)(*copy.deepcopy(inputs))) for _ in range(2)]
            if [value.shape for value in results[0]] != shapes:
                raise Unsupported("the shapes of its results depend on its inputs' values")
            if all(torch.equal(left, right) for left, right in zip(*results, strict=True)):
                model(*copy.deepcopy(inputs))
                changed = {name for name, value in model.named_buffers()
                           if not torch.equal(value, before[name])}
                buffers = copy.deepcopy(before)
                torch.func.functional_call(model, buffers, tuple(copy.deepcopy(inputs)))
                written = {name for name in changed if before[name].is_floating_point()
                           and not torch.equal(buffers[name], before[name])}
                if written:
                    self.notes.append(f"{', '.join(sorted(written))}: written by a call, so "
                                      "compared like a result")
                if kept := sorted(changed - written):
                    self.notes.append(f"{', '.join(kept)}: changed by a call: each module "
                                      "keeps its own copy; not compared")
                if training is None and not mode:
                    self.notes.append("eval mode: in training mode it draws random numbers")
                return mode, changed, written
        raise Unsupported("two calls with the same inputs give different results")

    def _named_dims(self, layout: Layout) -> dict[str, list[int | str]]:
        """Return each input's shape, its dimensions named by the sizes that they follow.

        A size that the arguments of the model's constructor follow is not named, since these are
        fixed; neither are the numbers that the file writes out.
        """
        shapes: dict[str, list[int | str]] = {
            name: list(value.shape) for name, value in layout.tensors.items()}
        for size, value in self.problem.sizes.items():
            if not isinstance(value, int) or value < 2 or size in self.source.numbered:
                continue
            try:
                other = self.source.open({**self.problem.sizes, size: value + 1})
                if other.init() != self.problem.init():
                    continue
                changed = Layout(other, other.inputs("meta")).tensors
            except Exception:
                continue
            for name, tensor in layout.tensors.items():
                for axis, (dim, new) in enumerate(zip(tensor.shape, changed[name].shape,
                                                      strict=True)):
                    if dim == value and new == value + 1:
                        shapes[name][axis] = size
        return shapes

    def _has_float64(self, training: bool) -> bool:
        """Return whether the model runs in float64 and gives about the values of float32."""
        inputs = self.real.inputs("cpu")
        model = in_mode(self.real.model("cpu"), training)
        plain = leaves(copy.deepcopy(model)(*copy.deepcopy(inputs)))
        try:
            wide = leaves(model.double()(*_double(inputs)))
            is_same = all(_is_near(left, right)
                          for left, right in zip(plain, wide, strict=True))
        except Exception as error:
            self.notes.append(f"the reference has no float64 form: {one_line(error)}")
            return False
        if not is_same:
            self.notes.append("the reference has no float64 form: float64 gives other values")
        return is_same


def _is_near(plain: torch.Tensor, wide: torch.Tensor) -> bool:
    """Return whether values differ by no more than a few roundings of the first one's dtype."""
    step = torch.finfo(plain.dtype).eps if plain.is_floating_point() else 0.0
    near = max(0.01, 16 * step)
    return torch.allclose(plain.double(), wide.double(), rtol=near, atol=near)


def _outline(problem: Problem) -> tuple[Any, Any, int, int | None, bool]:
    """Return the model, its result, bytes and operations of a call, and if it chooses by values.

    The call is on the `meta` device, without memory.
    """
    from torch.utils.flop_counter import FlopCounterMode

    inputs, model = problem.inputs("meta"), problem.model("meta")
    counter, watch = FlopCounterMode(display=False), ChoiceWatch()
    with torch.no_grad(), torch.device("meta"), sizes_of_values(), watch:
        try:
            with counter:
                value = model(*inputs)
        except RuntimeError:  # the counter's hooks on layers break torch.autograd.grad
            counter = FlopCounterMode(display=False)
            try:
                value = model(*inputs)
            except RuntimeError as error:
                if "meta tensors" not in str(error):
                    raise
                raise Unsupported("its forward chooses by the value of a tensor") from None
    tensors = [*Layout(problem, inputs).tensors.values(), *model.parameters(), *leaves(value)]
    moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return model, value, moved, counter.get_total_flops() or None, watch.chooses


def one_line_of(call: Callable[[], object]) -> str:
    """Return the error that a call raises, in one line."""
    try:
        call()
    except Exception as error:
        return one_line(error)
    return "it fails"


def _check_literal(value: Any) -> None:
    if isinstance(value, list | tuple):
        for part in value:
            _check_literal(part)
    elif isinstance(value, dict):
        for part in value.values():
            _check_literal(part)
    elif not isinstance(value, LITERALS):
        raise Unsupported(f"get_init_inputs gives a {type(value).__name__}")


def _double(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    return type(value)(map(_double, value)) if isinstance(value, list | tuple) else value


def _capped(value: Size, cap: int) -> Size:
    return min(value, cap) if isinstance(value, int) else tuple(min(v, cap) for v in value)


def _divided(value: Size, divisor: int) -> Size:
    if isinstance(value, int):
        return max(min(value, CAPS[-1]), value // divisor)
    return tuple(max(min(v, CAPS[-1]), v // divisor) for v in value)


def _largest(value: Size) -> int:
    return value if isinstance(value, int) else max(value)


def _listed(value: Size) -> Any:
    return value if isinstance(value, int) else list(value)


def _dtype(value: torch.Tensor) -> str:
    name = str(value.dtype).removeprefix("torch.")
    return "uint8" if name == "bool" else name


def main(descriptor: int) -> None:
    serve(descriptor, lambda job: ModuleLearner(job).learn(job["training"]))
