"""Check shapes that the task does not list: a kernel right only on listed ones is over-fit.

One size of a config class is changed to a value between or beyond the listed ones. Such shapes are
checked and never timed. A failure counts only if the baseline is right on that shape: a kernel may
need multiples of a tile if the baseline does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from harness.compile.kernel import Kernel
from harness.correctness import held_out_points
from harness.correctness.tolerance import Tolerance
from harness.errors import InputError
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.runners.oracle_client import Oracle, OracleError
from harness.runners.slots.case_memory import CaseMemory
from harness.tasks.target import ConfigClass, Target
from harness.tasks.task_file import check
from harness.verdict import HELD_OUT, Evidence, Finding

LEAST_BYTES = 128 << 20
"""Bytes of all checked shapes together, at least; otherwise those of all config classes."""
EACH, MOST = 2, 16
"""Checked shapes for each config class, and for a task."""


@dataclass(frozen=True, kw_only=True)
class HeldOutCheck:
    """What the shapes showed that the task does not list."""

    evidence: Evidence
    finding: Finding | None = None


def held_out_shapes(target: Target, rng: random.Random) -> Iterator[ConfigClass]:
    """Yield config classes with one size changed, which together are no larger than all others."""
    left = max(LEAST_BYTES, sum(_bytes(target, entry) for entry in target.classes))
    names = [name for name in target.classes[0].shape
             if all(name in entry.shape for entry in target.classes)]
    yielded = 0
    for point in held_out_points.points([entry.shape for entry in target.classes], names, rng):
        base = target.classes[point.base]
        changed = replace(base, shape=point.of(base.shape))
        try:
            check(replace(target, classes=(changed,)))
        except InputError:
            continue
        size = _bytes(target, changed)
        if size <= left and yielded < min(MOST, EACH * len(target.classes)):
            left, yielded = left - size, yielded + 1
            yield changed


def check_held_out(target: Target, oracle: Oracle, tolerance: Tolerance, runner: Peer,
                   candidate: Kernel, held: DeviceLock | None) -> HeldOutCheck:
    """Run the candidate on shapes that are not listed; a crash there ends its runner.

    The finding is a flag if it fails on one on which the baseline is right.
    """
    right: list[str] = []
    for config_class in held_out_shapes(target, random.SystemRandom()):
        try:
            case = oracle.make(config_class, "normal")
        except OracleError:
            continue  # the reference does not support this shape
        if case.skip:
            continue
        shape = " ".join(f"{name}={size}" for name, size in config_class.shape.items())
        has_crashed = False
        try:
            memory = CaseMemory(oracle, runner, case)
            judged = tolerance.judge(case, memory.call(case), candidate, held)
            memory.close()
            problem = "" if judged is None or judged.right else "is wrong"
        except (PeerError, PeerDied) as error:
            problem, has_crashed = f"fails ({error.what})", True
        if not problem:
            right.append(shape)
        elif tolerance.baseline_is_right(case, held):
            return HeldOutCheck(evidence=_evidence(right), finding=Finding(
                rule=HELD_OUT, severity="flag", detail=(
                    f"{problem} on {shape}, which the task does not list and the baseline is "
                    "right on")))
        if has_crashed:
            break
        oracle.drop(case)
    return HeldOutCheck(evidence=_evidence(right))


def _evidence(right: list[str]) -> Evidence:
    return Evidence(kind=HELD_OUT, detail=(
        f"right on {len(right)} shapes that the task does not list: {'; '.join(right)}"
        if right else "no shape that the task does not list could be checked"))


def _bytes(target: Target, config_class: ConfigClass) -> int:
    return sum(tensor.nbytes for tensor in target.tensors(config_class)
               if tensor.role != "scalar")
