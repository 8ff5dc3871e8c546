"""Try proposed knobs: each is set to two other values, and the kernel must stay right."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from engine.verify import harness_client
from engine.verify.harness_client import HarnessFault
from harness.devices.device import Device
from harness.requests import EvaluateRequest
from harness.search.space import knob_proposals, knobs
from harness.search.space.knob_proposals import KnobProposal
from harness.settings import Settings, Trees
from harness.tasks.target import Target

SKIPPED = (".git", ".venv", "venv", "node_modules", "workspace", "__pycache__")


def accepted(proposals: Sequence[KnobProposal],
             is_right: Callable[[Mapping[str, int]], bool]) -> tuple[KnobProposal, ...]:
    """Return the proposals with which the kernel is right at two other values each.

    All are set at once; where that is wrong, one after the other.
    """
    left = list(proposals)
    for pick in (0, -1):
        values = {each.name: _others(each)[pick] for each in left}
        if left and not is_right(values):
            left = [each for each in left if is_right({each.name: values[each.name]})]
    return tuple(left)


def try_all(target: Target, project: Path, device: Device, proposals: Sequence[KnobProposal], *,
            python: str | None) -> tuple[KnobProposal, ...]:
    """Return the proposals that keep the kernel right on its config classes."""
    text = (project / target.source).read_text(encoding="utf-8")
    declared = knob_proposals.declare(text, proposals, target.language)
    with tempfile.TemporaryDirectory(prefix="kopt-") as folder, contextlib.closing(
            harness_client.warm_start(target, device, python, {})) as warm:
        tree, scratch = Path(folder) / "candidate", Path(folder) / "scratch"
        shutil.copytree(project, tree, symlinks=True, ignore=shutil.ignore_patterns(*SKIPPED))
        scratch.mkdir()
        request = EvaluateRequest(
            target=_smallest(target), device=device.id,
            trees=Trees(candidate=str(tree), incumbent=str(tree), reference=str(project)),
            settings=Settings(scratch=str(scratch), python=python, distributions=("normal",),
                              static_audit=False))

        def is_right(values: Mapping[str, int]) -> bool:
            (tree / target.source).write_text(
                knobs.apply(declared, dict(values), language=target.language), encoding="utf-8")
            try:
                return harness_client.evaluate(request, warm=warm).correct
            except HarnessFault:
                return False

        return accepted(proposals, is_right)


def _others(each: KnobProposal) -> list[int]:
    """Return the choices that are not the present value, those next to it first."""
    at = each.choices.index(each.value)
    return sorted((value for value in each.choices if value != each.value),
                  key=lambda value: abs(each.choices.index(value) - at))


def _smallest(target: Target) -> Target:
    """Return the target with its first and its smallest config class."""
    smallest = min(target.classes, key=lambda entry: sum(
        tensor.nbytes for tensor in target.tensors(entry)))
    first = target.classes[0]
    return replace(target, classes=(first,) if smallest is first else (first, smallest))
