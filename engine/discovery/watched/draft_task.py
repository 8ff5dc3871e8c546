"""Turn observed calls of a function into a task: arguments, roles, ranges, classes, weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.discovery.watched import drafted_args
from engine.discovery.watched.entry_source import EntrySource
from engine.discovery.watched.size_names import SizeNames
from harness.call_trace.watched_calls import ObservedCall, ObservedValue
from harness.errors import InputError
from harness.formats.quantities import counted, listed
from harness.tasks.target import MAX_ELEMENTS, Arg, ConfigClass

MOST_CLASSES = 6
LEAST_CLASSES = 3
"""The most called shapes that become classes if more than MOST_CLASSES were called."""
ORDER = {"tensor": 0, "tuple": 1, "number": 2}
"""Order in which arguments give names to sizes, by kind; all other kinds come last."""


@dataclass(frozen=True, kw_only=True)
class CallGroup:
    """Calls with the same dtypes and constants, which one task can describe."""

    calls: tuple[ObservedCall, ...]

    @property
    def count(self) -> int:
        return sum(call.calls for call in self.calls)

    @property
    def dtypes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(value.dtype for value in self.calls[0].args.values()
                                   if value.kind == "tensor"))

    def describe(self) -> str:
        """Return in a few words what its calls share."""
        args = self.calls[0].args
        tensors = dict.fromkeys(f"{value.dtype} [{len(value.shape)}-d]" for value in args.values()
                                if value.kind == "tensor")
        constants = [f"{name}={value.value}" for name, value in args.items()
                     if value.value is not None and (value.kind in ("literal", "dtype")
                                                     or isinstance(value.value, float))]
        return f"{counted(self.count, 'call')} with " + ", ".join([*tensors, *constants][:6])

    @property
    def elements(self) -> int:
        """How many elements the tensors of its largest call have."""
        return max(sum(math.prod(value.shape) for value in call.args.values()
                       if value.kind == "tensor") for call in self.calls)


@dataclass(frozen=True, kw_only=True)
class TaskDraft:
    """The parts of a task that calls show, and the reason of each inferred value.

    `keywords` are arguments that can be passed by name only. `kept` are the positions of those of
    the `returned` values that are new tensors, and `returned_shapes` their shapes; `single` means
    that a value is returned instead of a tuple. `members` are arguments that the caller does not
    pass, and `packed` containers, see ObservedCall. With a backward pass, `grads` are the arguments
    whose gradients are results too, and `cotangents` those that are the outputs' gradients.
    """

    args: tuple[Arg, ...]
    classes: tuple[ConfigClass, ...]
    returns: bool
    return_dtypes: tuple[str, ...]
    returned_shapes: tuple[tuple[int | str, ...] | None, ...]
    kept: tuple[int, ...]
    returned: int
    single: bool
    keywords: tuple[str, ...]
    reasons: tuple[tuple[str, str, str], ...]
    remarks: tuple[str, ...] = ()
    members: Mapping[str, str] = field(default_factory=dict)
    packed: Mapping[str, str] = field(default_factory=dict)
    grads: tuple[str, ...] = ()
    cotangents: tuple[str, ...] = ()
    recorded: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    """Values of integer tensors by config class and argument; empty unless all are known."""


def visible(calls: Sequence[ObservedCall], entry: EntrySource) -> list[ObservedCall]:
    """Return calls without arguments that callers do not pass: self, ctx, trailing defaults."""
    dropped: set[str] = set()
    for name in reversed([name for name in calls[0].args if name not in calls[0].members]):
        values = [call.args[name] for call in calls if name in call.args]
        if name not in entry.defaults or any(
                value.kind in ("number", "tensor") or (
                    entry.defaults[name] is not ... and value.value != entry.defaults[name])
                for value in values):
            break
        dropped.add(name)
    return [replace(call, args={name: value for name, value in call.args.items()
                                if name not in {*list(call.args)[:entry.hidden], *dropped}})
            for call in calls]


def groups(calls: Sequence[ObservedCall]) -> list[CallGroup]:
    """Return the calls grouped by dtypes and constants.

    The group with the most calls comes first, among equals that with the largest tensors.
    """
    by_kind: dict[tuple[Any, ...], list[ObservedCall]] = {}
    for call in calls:
        key = tuple((name, *_key(value)) for name, value in call.args.items())
        form = key, *call.packed.items(), call.single, len(call.returned)
        by_kind.setdefault(form, []).append(call)
    return sorted((CallGroup(calls=tuple(calls)) for calls in by_kind.values()),
                  key=lambda group: (-group.count, -group.elements))


def choose(groups: Sequence[CallGroup], *, interpret: bool) -> CallGroup:
    """Return the most called group; with `interpret`, preferably one without bfloat16.

    Triton's interpreter computes bfloat16 wrongly.
    """
    usable = [group for group in groups if not (interpret and "bfloat16" in group.dtypes)]
    return (usable or list(groups))[0]


def _key(value: ObservedValue) -> tuple[Any, ...]:
    if value.kind == "tensor":
        return "tensor", value.dtype, len(value.shape)
    if value.kind == "number":
        return ("number", "int") if isinstance(value.value, int) else ("number", value.value)
    if value.kind == "tuple" and isinstance(value.value, tuple):
        whole = all(isinstance(entry, int) for entry in value.value)
        return ("tuple", len(value.value)) if whole else ("tuple", value.value)
    return value.kind, value.value, value.text


def draft(group: CallGroup, entry: EntrySource, location: str, *,
          backward: bool = False) -> TaskDraft:
    """Return the task that a group of calls shows.

    Raises InputError for an argument that a task cannot describe. `location` is the function's file
    and line, for messages. With `backward` the gradients are results.
    """
    calls = _distinct(group.calls)
    sizes = SizeNames(entry.sizes)
    remarks: list[str] = []
    reasons: list[tuple[str, str, str]] = []
    written = {name for call in calls for name in call.written}
    args: dict[str, Arg] = {}
    names = list(calls[0].args)
    for name in sorted(names, key=lambda name: (
            ORDER.get(calls[0].args[name].kind, len(ORDER)), names.index(name))):
        values = [call.args[name] for call in calls]
        if values[0].kind == "other" or calls[0].members.get(name) == "unseen":
            raise _undescribed(name, calls[0], location)
        args[name] = drafted_args.tensor(name, values, sizes, name in written, remarks) \
            if values[0].kind == "tensor" else \
            drafted_args.constant(name, values, sizes)
    ordered = tuple(args[name] if args[name].shape is None else drafted_args.with_bounds(
        args[name], calls, sizes, remarks) for name in names)
    kept = tuple(index for index, value in enumerate(calls[0].returned)
                 if value.kind == "tensor" and not calls[0].same[index])
    outputs = [arg.name for arg in ordered if arg.kind in ("output", "inout")]
    if not kept and not outputs:
        what = ", ".join(value.text or value.kind for value in calls[0].returned) or "nothing"
        raise InputError(f"the function wrote to no argument and returned {what}", where=location,
                         fix="name a function that returns or fills tensors")
    for name, names_of in (("inputs", [arg.name for arg in ordered if arg.kind == "input"]),
                           ("outputs", outputs)):
        if names_of:
            reasons.append((name, ", ".join(names_of), "overwritten in the program"
                            if name == "outputs" else "read in the program"))
    classes = _classes(calls, sizes, reasons)
    result = TaskDraft(
        args=ordered, classes=classes, returns=bool(kept), kept=kept,
        return_dtypes=tuple(calls[0].returned[index].dtype for index in kept),
        returned_shapes=tuple(_returned_shape(calls, index, sizes) for index in kept),
        returned=len(calls[0].returned), single=calls[0].single, keywords=calls[0].keywords,
        members={name: what for name, what in calls[0].members.items() if name in args},
        packed=calls[0].packed, recorded=_recorded(calls, ordered, sizes, classes),
        reasons=tuple(reasons), remarks=tuple(remarks))
    return _with_backward(result, calls, location) if backward else result


def _undescribed(name: str, call: ObservedCall, location: str) -> InputError:
    """Return the error for an argument that is neither a tensor nor a constant."""
    if call.members.get(name) == "unseen":
        return InputError("no object of this class was seen to be made", where=location,
                          fix="make one in the program, and call the method on it")
    what = "the constructor's argument" if name in call.members else "argument"
    shown = name.removeprefix("init_") if name in call.members else name
    kind = call.args[name].text
    what = f"{what} {shown!r} is {kind}, which a task cannot describe"
    return InputError(what, where=location, fix=(
        "write into the same file, so that candidates may change both, and name a function that "
        f"takes torch tensors, calls it with {shown}.numpy() and returns torch.from_numpy(...); or "
        "take a benchmark of your own: kopt new --benchmark COMMAND" if kind == "numpy.ndarray" else
        "name a function that takes tensors and constants, or write an adapter: "
        "adapter: FILE:FUNCTION in the task"))


def _with_backward(draft: TaskDraft, calls: Sequence[ObservedCall], location: str) -> TaskDraft:
    """Return the draft with gradients as further results. Raises InputError if it has none."""
    grads = tuple(arg.name for arg in draft.args if any(arg.name in call.grads for call in calls))
    if not grads:
        raise InputError("no argument required a gradient in the program", where=location,
                         fix="call .requires_grad_() on the tensors whose gradients you want")
    if filled := [arg.name for arg in draft.args if arg.kind in ("output", "inout")]:
        raise InputError(f"the function writes to {filled[0]!r}, which has no backward pass",
                         where=location, fix="leave --backward out, or return the result")
    args = list(draft.args)
    dtypes = {arg.name: arg.dtype for arg in args}
    floats = [at for at, dtype in enumerate(draft.return_dtypes) if "float" in dtype]
    for at in floats:
        shape = draft.returned_shapes[at]
        if shape is None:
            raise InputError("the shape of the result does not follow from the arguments' sizes",
                             where=location, fix="leave --backward out")
        name = "grad_output" if len(floats) == 1 else f"grad_output_{at}"
        args.append(Arg(name=name, dtype=draft.return_dtypes[at], shape=shape))
    return replace(
        draft, args=tuple(args), grads=grads, cotangents=tuple(
            arg.name for arg in args[len(draft.args):]),
        return_dtypes=(*draft.return_dtypes, *(dtypes[name] for name in grads)),
        reasons=(*draft.reasons, ("gradients", ", ".join(grads), "required in the program")))


def _distinct(calls: Sequence[ObservedCall]) -> list[ObservedCall]:
    """Return one call for each set of sizes, with the number of all calls with these sizes."""
    by_sizes: dict[tuple[Any, ...], ObservedCall] = {}
    for call in calls:
        key = tuple((value.shape, value.value) for value in call.args.values())
        old = by_sizes.get(key)
        by_sizes[key] = call if old is None else replace(old, calls=old.calls + call.calls)
    return list(by_sizes.values())


def _returned_shape(calls: Sequence[ObservedCall], index: int,
                    sizes: SizeNames) -> tuple[int | str, ...] | None:
    """Return a returned tensor's shape in terms of the sizes, None if that is not possible."""
    shapes = [call.returned[index].shape for call in calls if index < len(call.returned)]
    if len({len(shape) for shape in shapes}) != 1 or len(shapes) < len(calls):
        return None
    sizes_found = [sizes.matching(tuple(shape[axis] for shape in shapes))
                   for axis in range(len(shapes[0]))]
    return None if None in sizes_found else tuple(each for each in sizes_found if each is not None)


def _classes(calls: Sequence[ObservedCall], sizes: SizeNames,
             reasons: list[tuple[str, str, str]]) -> tuple[ConfigClass, ...]:
    """Return config classes of representative shapes, with weights from the calls."""
    made: dict[str, ConfigClass] = {}
    for index, call in enumerate(calls):
        shape = sizes.values(index)
        if sum(math.prod(value.shape) for value in call.args.values()) > MAX_ELEMENTS:
            continue
        name = _class_name(shape)
        old = made.get(name)
        weight = call.calls + (old.weight if old else 0.0)
        made[name] = ConfigClass(name=name, shape=shape, weight=weight)
    every = sorted(made.values(), key=lambda entry: -entry.weight)
    chosen = list(dict.fromkeys(entry.name for entry in _representatives(every)))
    classes = [entry for entry in every if entry.name in chosen]
    least = min(entry.weight for entry in classes)
    reasons.append(("classes", listed([entry.name for entry in classes], MOST_CLASSES),
                    f"{counted(len(every), 'shape')} called"
                    + (f", {len(every) - len(classes)} left out" if len(every) > len(classes)
                       else "")))
    if any(entry.weight != least for entry in classes):
        reasons.append(("weights", ", ".join(f"{entry.weight / least:g}" for entry in classes),
                        "how often each shape was called"))
    return tuple(replace(entry, weight=round(entry.weight / least, 2)) for entry in classes)


def _class_name(shape: Mapping[str, int]) -> str:
    return ("x".join(map(str, shape.values())) or "only")[:64]


def _recorded(calls: Sequence[ObservedCall], args: Sequence[Arg], sizes: SizeNames,
              classes: Sequence[ConfigClass]) -> dict[str, dict[str, tuple[int, ...]]]:
    names = [arg.name for arg in args if arg.shape is not None and "float" not in arg.dtype
             and arg.kind != "output"]
    by_class = {_class_name(sizes.values(index)): call.integers
                for index, call in reversed(list(enumerate(calls)))}
    recorded = {entry.name: {name: by_class[entry.name][name] for name in names
                             if name in by_class[entry.name]} for entry in classes}
    return recorded if names and all(len(each) == len(names) for each in recorded.values()) else {}


def _representatives(every: Sequence[ConfigClass]) -> Iterator[ConfigClass]:
    """Yield the most called classes, the smallest, the largest, one of odd sizes; or all of few."""
    if len(every) <= MOST_CLASSES:
        yield from every
        return
    yield from every[:LEAST_CLASSES]
    by_size = sorted(every, key=lambda entry: math.prod(entry.shape.values()))
    yield from (by_size[0], by_size[-1])
    yield from [entry for entry in every if any(
        value % 16 and value > 16 for value in entry.shape.values())][:1]
