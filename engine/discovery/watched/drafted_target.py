"""Makes a target, and the files that it needs, from a drafted task, its reference and adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from engine.discovery.module.draft_module import FOLDER
from engine.discovery.module.module_files import OBJECTS
from engine.discovery.new.draft_kernel import DraftedTarget
from engine.discovery.watched.draft_task import TaskDraft
from engine.discovery.watched.entry_source import EntrySource
from engine.discovery.watched.expected.reference_source import FoundReference
from harness.call_trace import watched_calls
from harness.call_trace.watched_calls import ObservedCall
from harness.formats import safetensors
from harness.tasks.target import BASELINE, Language, Target

REFERENCE = f"{FOLDER}/reference.py"
ADAPTER = f"{FOLDER}/adapter.py"
VALUES = f"{FOLDER}/values.safetensors"


def make(draft: TaskDraft, entry: EntrySource, source: str, language: Language, *,
         given: str = "", found: FoundReference | None = None) -> DraftedTarget | None:
    """Return the target; its reference is `given` as FILE:FUNCTION, `found`, or the baseline.

    Returns None if the found reference does not compute every output: all must be checked.
    """
    files: dict[str, str | bytes] = {}
    reference, forward = given or BASELINE, ""
    if found is not None:
        written = [arg for arg in draft.args if arg.kind in ("output", "inout")]
        if _positions(draft, found.call, found.outputs) != list(
                range(len(written) + len(draft.kept))):
            return None
        forward, reference = found.source, f"{REFERENCE}:{entry.name}"
        draft = replace(draft, args=tuple(  # the reference gets its values: a buffer that it fills
            replace(arg, role="inout") if arg.kind == "output" and arg.name in found.used else arg
            for arg in draft.args))
    elif given and draft.grads:
        forward = loaded(given, entry.name)
    if forward and draft.grads:
        forward = with_gradients(draft, entry, forward)
        reference = f"{REFERENCE}:{WITH_GRADIENTS}"
    if forward:
        files[REFERENCE] = forward
    text = adapter(draft, entry)
    if text is not None:
        files[ADAPTER] = text
    return DraftedTarget(files=files, recorded=draft.recorded, target=Target(
        op=(entry.entry.rpartition(".")[0] or entry.entry).lstrip("_") or "kernel",
        language=language, source=source, entry=entry.entry, reference=reference,
        adapter=None if text is None else f"{ADAPTER}:{FUNCTION}", args=draft.args,
        classes=draft.classes, returns=draft.returns, return_dtypes=draft.return_dtypes))


def outputs_as_inout(target: Target) -> Target | None:
    """Return the target with each `output` declared `inout`; None if it has none."""
    if not any(arg.kind == "output" for arg in target.args):
        return None
    return replace(target, args=tuple(
        replace(arg, role="inout") if arg.kind == "output" else arg for arg in target.args))


def with_copies(drafted: DraftedTarget) -> DraftedTarget | None:
    """Return the task with an adapter that passes copies of inputs; None if it has no gradients.

    A backward pass may overwrite what the forward pass saved, and the outputs' gradients.
    """
    text = str(drafted.files.get(ADAPTER, ""))
    if GRADIENTS not in text:
        return None
    names = ", ".join(arg.name for arg in drafted.target.args if arg.shape is not None)
    head, end, rest = text.partition("):\n")
    copies = f"    {names}, = (each.clone() for each in ({names},))\n"
    return replace(drafted, files={**drafted.files, ADAPTER: head + end + copies + rest})


def with_recorded(drafted: DraftedTarget) -> DraftedTarget | None:
    """Return the task with the integers recorded in the program's run; None if impossible.

    At least one input has to be drawn at random: otherwise a kernel could remember the answer.
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
        classes.append(replace(entry, interpret_shape=None, data={
            name: f"{VALUES}:{entry.name}.{name}" for name in args if name in names}))
    return replace(drafted, files={**drafted.files, VALUES: safetensors.pack(tensors)},
                   target=replace(drafted.target, classes=tuple(classes), args=tuple(
                       replace(arg, structure=None) for arg in drafted.target.args)))


def _positions(draft: TaskDraft, call: ObservedCall, outputs: Sequence[int]) -> list[int] | None:
    """Return the positions of a call's `outputs` among the target's outputs.

    None if one is missing, repeated or out of order.
    """
    written = [arg.name for arg in draft.args if arg.kind in ("output", "inout")]
    names = call.outputs
    known: list[str | int] = [*written, *draft.kept]
    positions = [known.index(names[output]) for output in outputs
                 if output < len(names) and names[output] in known]
    is_complete = len(positions) == len(outputs) and positions == sorted(set(positions))
    return positions if is_complete else None


FUNCTION = "call"
WITH_GRADIENTS = "with_gradients"
GRADIENTS = '''
def leaf(value):
    """Return a tensor whose gradient is asked for."""
    return value.detach().requires_grad_()


def gradients(outputs, inputs, cotangents):
    """Return the gradients of inputs, zeros where an output does not depend on one."""
    pairs = [(output, cotangent) for output, cotangent in zip(outputs, cotangents)
             if output.requires_grad]
    return torch.autograd.grad([output for output, _ in pairs], inputs,
                               [cotangent for _, cotangent in pairs],
                               allow_unused=True, materialize_grads=True)
'''


def adapter(draft: TaskDraft, entry: EntrySource) -> str | None:
    """Return the adapter's source, None if the entry can be called without one."""
    passed = watched_calls.passed([
        arg.name for arg in draft.args if arg.name not in draft.members
        and arg.name not in draft.cotangents], draft.packed)
    made = {**{name: name for name in passed}, **draft.packed}
    keywords = [name for name in passed if name in draft.keywords]
    selects = bool(draft.kept) and len(draft.kept) < draft.returned
    if not (keywords or selects or draft.grads or entry.owner or draft.packed):
        return None
    arguments = ", ".join(f"{name}={made[name]}" if name in keywords else made[name]
                          for name in passed)
    body = [f"{', '.join(draft.grads)}, = map(leaf, ({', '.join(draft.grads)},))"] \
        if draft.grads else []
    call = _of_object(draft, entry, made, keywords, body) if entry.owner else \
        f"module.{entry.entry}({arguments})"
    if not draft.grads:
        body += [f"result = {call}", f"return {_picked(draft)}"]
        return _file(entry, draft, body)
    body += ["with torch.enable_grad():", f"    result = {call}",
             f"outputs = {_picked(draft, always=True)}",
             f"return (*(each.detach() for each in outputs), *gradients({_differentiable(draft)}, "
             f"({', '.join(draft.grads)},), ({', '.join(draft.cotangents)},)))"]
    return _file(entry, draft, body)


def with_gradients(draft: TaskDraft, entry: EntrySource, source: str) -> str:
    """Return the source of a reference that also computes gradients.

    `source` is that of the reference for the forward pass.
    """
    cotangents = [f"given[{name!r}]" for name in draft.cotangents]
    grads = [f"given[{name!r}]" for name in draft.grads]
    return "\n".join([
        source.rstrip(), "", GRADIENTS, "", f"def {WITH_GRADIENTS}(**given):",
        f"    given.update((name, leaf(given[name])) for name in {draft.grads!r})",
        f"    names = inspect.signature({entry.name}).parameters", "    with torch.enable_grad():",
        f"        result = {entry.name}(**{{name: given[name] for name in names}})",
        "    outputs = result if isinstance(result, (tuple, list)) else (result,)",
        "    return (*(each.detach() for each in outputs), *gradients("
        f"{_differentiable(draft)}, ({', '.join(grads)},), ({', '.join(cotangents)},)))", ""
    ]).replace("import torch", "import inspect\n\nimport torch", 1)


def loaded(given: str, name: str) -> str:
    """Return a source that loads the project's FILE:FUNCTION, and calls it `name`."""
    file, _, function = given.partition(":")
    return "\n".join([
        f'"""{given} and its gradients, written by kopt new."""', "", "import importlib.util",
        "from pathlib import Path", "", "import torch", "",
        f"path = Path(__file__).resolve().parents[1] / {file!r}",
        'spec = importlib.util.spec_from_file_location("kopt_given_reference", path)',
        "module = importlib.util.module_from_spec(spec)", "spec.loader.exec_module(module)",
        f"{name} = module.{function}", ""])


def _of_object(draft: TaskDraft, entry: EntrySource, passed: Mapping[str, str],
               keywords: Sequence[str], body: list[str]) -> str:
    """Append to `body` the lines that make the object; return the call of its method."""
    init = [(name, what.removeprefix("init:")) for name, what in draft.members.items()
            if what.startswith("init:")]
    positional = "".join(f"{name}, " for name, what in init if not what)
    named = ", ".join(f"{what.rstrip('=')!r}: {name}" for name, what in init if what)
    first = next(arg.name for arg in draft.args if arg.shape is not None)
    weights = ", ".join(f"{what.removeprefix('weight:')!r}: {name}"
                        for name, what in draft.members.items() if what.startswith("weight:"))
    training = next((name for name, what in draft.members.items() if what == "training"), "")
    body += [f"weights = {{{weights}}}",
             f"owner = object_of(module.{entry.owner}, ({positional}), {{{named}}}, "
             f"{training or False}, weights, {first}.device)"]
    args = "".join(f"{made}, " for name, made in passed.items() if name not in keywords)
    kwargs = ", ".join(f"{name!r}: {passed[name]}" for name in keywords)
    method = entry.entry.rpartition(".")[2]
    if not training:
        return f"owner.{method}(*({args}), **{{{kwargs}}})"
    if method != "forward":
        body.append(f"owner.forward = owner.{method}")
    return f"torch.func.functional_call(owner, weights, ({args}), {{{kwargs}}})"


def _picked(draft: TaskDraft, *, always: bool = False) -> str:
    """Return the expression of the returned tensors; with `always`, a tuple even of one."""
    if draft.single or not draft.kept:
        return "(result,)" if always else "result"
    picked = ", ".join(f"result[{index}]" for index in draft.kept)
    return f"({picked},)" if always or len(draft.kept) > 1 else picked


def _differentiable(draft: TaskDraft) -> str:
    """Return the expression of the outputs that have a cotangent."""
    floats = [at for at, dtype in enumerate(draft.return_dtypes[:len(draft.kept)])
              if "float" in dtype]
    return f"({', '.join(f'outputs[{at}]' for at in floats)},)"


def _file(entry: EntrySource, draft: TaskDraft, body: Sequence[str]) -> str:
    names = [arg.name for arg in draft.args]
    parts = [f'"""Calls {entry.entry} of the candidate\'s loaded module, written by kopt new."""']
    if draft.grads or entry.owner:
        parts += ["", "import torch"]
    parts += ["", "", f"def {FUNCTION}({', '.join(['module', *names])}):",
              *(f"    {line}" for line in body), ""]
    parts += [GRADIENTS] if draft.grads else []
    parts += [OBJECTS] if entry.owner else []
    return "\n".join(parts).rstrip() + "\n"
