"""Put a drafted task, its reference and its adapter together: a target, and the files it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.discovery.watched import call_adapter
from engine.discovery.watched.draft_task import TaskDraft
from engine.discovery.watched.entry_source import EntrySource
from engine.discovery.watched.expected.reference_source import FoundReference
from harness.call_trace.watched_calls import ObservedCall
from harness.formats import safetensors
from harness.tasks.target import BASELINE, Language, Target

FOLDER = "kopt_task"
REFERENCE = f"{FOLDER}/reference.py"
ADAPTER = f"{FOLDER}/adapter.py"
VALUES = f"{FOLDER}/values.safetensors"


@dataclass(frozen=True, kw_only=True)
class DraftedTarget:
    """A target, and the contents of the files beside it by their path in the project.

    `recorded` are the program's own integers, for a kernel that does not take drawn ones.
    """

    target: Target
    files: Mapping[str, str | bytes]
    recorded: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)


def make(draft: TaskDraft, entry: EntrySource, source: str, language: Language, *,
         given: str = "", found: FoundReference | None = None) -> DraftedTarget | None:
    """Return the target; its reference is `given` as FILE:FUNCTION, `found`, or the baseline.

    Returns None if the found reference does not compute every output: none goes unchecked.
    """
    files: dict[str, str | bytes] = {}
    reference, forward = given or BASELINE, ""
    if found is not None:
        written = [arg for arg in draft.args if arg.kind in ("output", "inout")]
        if _positions(draft, found.call, found.outputs) != list(
                range(len(written) + len(draft.kept))):
            return None
        forward, reference = found.source, f"{REFERENCE}:{entry.name}"
    elif given and draft.grads:
        forward = call_adapter.loaded(given, entry.name)
    if forward and draft.grads:
        forward = call_adapter.with_gradients(draft, entry, forward)
        reference = f"{REFERENCE}:{call_adapter.WITH_GRADIENTS}"
    if forward:
        files[REFERENCE] = forward
    text = call_adapter.adapter(draft, entry)
    if text is not None:
        files[ADAPTER] = text
    return DraftedTarget(files=files, recorded=draft.recorded, target=Target(
        op=(entry.entry.rpartition(".")[0] or entry.entry).lstrip("_") or "kernel",
        language=language, source=source, entry=entry.entry, reference=reference,
        adapter=None if text is None else f"{ADAPTER}:{call_adapter.FUNCTION}", args=draft.args,
        classes=draft.classes, returns=draft.returns, return_dtypes=draft.return_dtypes))


def with_roles(target: Target) -> Target | None:
    """Return the target with its outputs read as well as written, None if they were already."""
    if not any(arg.kind == "output" for arg in target.args):
        return None
    return replace(target, args=tuple(
        replace(arg, role="inout") if arg.kind == "output" else arg for arg in target.args))


def with_recorded(drafted: DraftedTarget) -> DraftedTarget | None:
    """Return the task with the program's own integers, None where that is not possible.

    One input has to be drawn, else a kernel could remember the answer.
    """
    args = {arg.name: arg for arg in drafted.target.args}
    names = {name for values in drafted.recorded.values() for name in values}
    if not names or names >= {arg.name for arg in args.values() if arg.kind in ("input", "inout")}:
        return None
    tensors, classes = {}, []
    for entry in drafted.target.classes:
        for tensor in drafted.target.tensors(entry):
            if tensor.name in names:
                tensors[f"{entry.name}.{tensor.name}"] = (
                    safetensors.CODES[tensor.dtype], tensor.shape, safetensors.integers(
                        tensor.dtype, drafted.recorded[entry.name][tensor.name]))
        classes.append(replace(entry, data={
            name: f"{VALUES}:{entry.name}.{name}" for name in args if name in names}))
    return replace(drafted, files={**drafted.files, VALUES: safetensors.pack(tensors)},
                   target=replace(drafted.target, classes=tuple(classes), args=tuple(
                       replace(arg, structure=None) for arg in drafted.target.args)))


def _positions(draft: TaskDraft, call: ObservedCall, outputs: Sequence[int]) -> list[int] | None:
    """Return which of the target's outputs those of a call are, in order: filled, then returned.
    """
    written = [arg.name for arg in draft.args if arg.kind in ("output", "inout")]
    names: list[str | int] = list(call.written)
    names += [call.same[index] or index for index, value in enumerate(call.returned)
              if value.kind == "tensor"]
    known: list[str | int] = [*written, *draft.kept]
    found = [known.index(names[output]) for output in outputs
             if output < len(names) and names[output] in known]
    return found if len(found) == len(outputs) and found == sorted(set(found)) else None
