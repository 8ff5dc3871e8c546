"""Check shapes that the task does not list: a kernel right only on listed ones is over-fit.

One symbol of the smallest class is changed. A failure counts only if the baseline is right on that
shape: a kernel may need multiples of a tile if the baseline does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from harness.compile.kernel import Kernel
from harness.correctness.tolerance import Tolerance
from harness.errors import InputError
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.runners.oracle_client import Oracle, OracleError
from harness.runners.slots.case_memory import CaseMemory
from harness.target import ConfigClass, Target, check
from harness.verdict import Finding

MOST_BYTES = 64 << 20


def held_out_shapes(target: Target, rng: random.Random) -> Iterator[ConfigClass]:
    """Yield the smallest class with one size increased by one, then with it doubled."""
    smallest = min(target.classes, key=lambda entry: _bytes(target, entry))
    names = [name for name, size in smallest.shape.items() if size > 2]
    if not names:
        return
    name = rng.choice(names)
    for size in (smallest.shape[name] + 1, 2 * smallest.shape[name]):
        changed = replace(smallest, shape={**smallest.shape, name: size})
        try:
            check(replace(target, classes=(changed,)))
        except InputError:
            continue
        if _bytes(target, changed) <= MOST_BYTES:
            yield changed


def find_over_fit(target: Target, oracle: Oracle, tolerance: Tolerance, runner: Peer,
                  candidate: Kernel, held: DeviceLock | None) -> Finding | None:
    """Run the candidate on shapes that are not listed; a crash there ends its runner.

    Returns a flag if it fails on one on which the baseline is right.
    """
    for config_class in held_out_shapes(target, random.SystemRandom()):
        try:
            case = oracle.make(config_class, "normal")
        except OracleError:
            continue  # the reference does not support this shape
        if case.skip:
            continue
        try:
            errors = CaseMemory(oracle, runner, case).call(case)
            judged = tolerance.judge(case, errors, candidate, held)
            if judged is None or judged.right:
                continue
            problem = "is wrong"
        except (PeerError, PeerDied) as error:
            problem = f"fails ({error.what})"
        if tolerance.baseline_is_right(case, held):
            shape = ", ".join(f"{name}={size}" for name, size in config_class.shape.items())
            return Finding(rule="over-fit", severity="flag", detail=(
                f"{problem} on {shape}, which the task does not list and the baseline is right on"))
        return None
    return None


def _bytes(target: Target, config_class: ConfigClass) -> int:
    return sum(tensor.nbytes for tensor in target.tensors(config_class)
               if tensor.role != "scalar")
