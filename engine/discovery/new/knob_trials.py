"""Try proposed knobs: each is set to two other values, with which the kernel must stay correct.

These are the choices next to the present value: the largest tiles take minutes to compile.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.campaign import declared_knobs
from engine.discovery.project import sources
from engine.verify import harness_client
from engine.verify.harness_client import HarnessFault
from harness.devices.device import Device
from harness.formats import file_copy
from harness.requests import EvaluateRequest, Progress
from harness.search.space import knob_proposals, knobs
from harness.search.space.knob_edits import KnobProposal
from harness.settings import Settings, Trees
from harness.tasks.target import Target

TRIAL_S = 30.0
"""Seconds that a trial's runner may take on a card: a value that compiles longer is rejected."""


def accepted(proposals: Sequence[KnobProposal],
             is_correct: Callable[[Mapping[str, int]], bool]) -> tuple[KnobProposal, ...]:
    """Return the proposals with which the kernel is correct at two other values each.

    First all knobs are set at once; if the kernel is wrong then, they are set one at a time.
    """
    left = list(proposals)
    for pick in (0, 1):
        values = {each.name: _others(each)[pick] for each in left}
        if left and not is_correct(values):
            left = [each for each in left if is_correct({each.name: values[each.name]})]
    return tuple(left)


def declare(target: Target, project: Path, device: Device, *, python: str | None,
            progress: Callable[[Progress], None]) -> tuple[KnobProposal, ...]:
    """Write the patch that declares the knobs with which the kernel stays correct; return them."""
    path = project / declared_knobs.PATCH
    path.unlink(missing_ok=True)
    text = sources.read_source(project / target.source)
    proposals = knob_proposals.propose(text, target.language,
                                       target.launch.defaults if target.launch else None,
                                       target.entry)
    kept = _try_all(target, project, device, text, proposals, python, progress) \
        if proposals else ()
    if kept:
        declared = knob_proposals.declare(text, kept, target.language)
        path.parent.mkdir(exist_ok=True)
        path.write_text(knob_proposals.patch(text, declared, target.source), encoding="utf-8")
    return kept


def describe(proposals: Sequence[KnobProposal]) -> list[str]:
    """Return a line on each accepted proposal."""
    return [f"  knob {each.name}: {each.value} of {list(each.choices)}  "
            f"({each.why}, line {each.line})" for each in proposals]


def summary(proposals: Sequence[KnobProposal]) -> str:
    """Return where the accepted proposals are declared, in one line."""
    names = ", ".join(f"{each.name} ({len(each.choices)})" for each in proposals)
    return (f"knobs: {names}; declared in a campaign's own copy by {declared_knobs.PATCH} (the "
            "manifest's knobs: keep, inline or none)")


def _try_all(target: Target, project: Path, device: Device, text: str,
             proposals: Sequence[KnobProposal], python: str | None,
             progress: Callable[[Progress], None]) -> tuple[KnobProposal, ...]:
    """Return the proposals with which the kernel stays correct on two config classes.

    If the device cannot run the kernel, two values of each have to compile.
    """
    declared = knob_proposals.declare(text, proposals, target.language)
    with tempfile.TemporaryDirectory(prefix="kopt-") as folder, contextlib.closing(
            harness_client.warm_start(target, device, python, {})) as warm:
        tree, scratch = Path(folder) / "candidate", Path(folder) / "scratch"
        file_copy.copy_sources(project, tree, skipped=sources.NO_SOURCES)
        scratch.mkdir()
        request = EvaluateRequest(
            target=_smallest(target), device=device.id,
            trees=Trees(candidate=str(tree), incumbent=str(tree), reference=str(project)),
            settings=Settings(scratch=str(scratch), python=python, distributions=("normal",),
                              static_audit=False,
                              wall_s=None if device.kind == "cpu" else TRIAL_S))

        def is_correct(values: Mapping[str, int]) -> bool:
            progress(Progress(stage="trying knobs", detail=", ".join(
                f"{name} {value}" for name, value in values.items())))
            (tree / target.source).write_text(
                knobs.apply(declared, dict(values), language=target.language), encoding="utf-8")
            try:
                verdict = harness_client.evaluate(request, warm=warm, progress=waits)
            except HarnessFault:
                return False
            return verdict.correct or bool(verdict.not_judged)

        def waits(line: Progress) -> None:
            if line.stage == "waiting":
                progress(line)

        return accepted(proposals, is_correct)


def _others(each: KnobProposal) -> tuple[int, int]:
    """Return the choices below and above the present value.

    If the present value is the first or the last choice, return the nearest and the farthest.
    """
    at = each.choices.index(each.value)
    below, above = each.choices[:at][::-1], each.choices[at + 1:]
    return (below[0], above[0]) if below and above else ((below or above)[0], (below or above)[-1])


def _smallest(target: Target) -> Target:
    """Return the target with its first and its smallest config class."""
    smallest = min(target.classes, key=lambda entry: sum(
        tensor.nbytes for tensor in target.tensors(entry)))
    first = target.classes[0]
    return replace(target, classes=(first,) if smallest is first else (first, smallest))
