"""Check what a kernel carries from call to call.

The same call is repeated, contents are changed in place, and earlier outputs are read again.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Callable

from harness.case import Case, Errors
from harness.runners.oracle_client import Oracle
from harness.runners.slots.case_memory import CaseMemory
from harness.verdict import Finding

REPEATS = 2
MOST_MOVES = 2048
WAIT_S = 0.02
LARGE_BYTES = 32 << 20


Judge = Callable[[Case, Errors, Errors | None], Errors]
"""Judges errors by what is allowed; returns them as they are if they belong to a known answer."""


class StatefulnessCheck:
    """Checks one class on the slot of a first, right call.

    The check changes the contents of the case. It makes fewer calls if calls are `slow` or the
    tensors large.
    """

    def __init__(self, oracle: Oracle, memory: CaseMemory, judge: Judge, *,
                 slow: bool = False) -> None:
        self.oracle, self._memory, self._judge = oracle, memory, judge
        self._slow = slow
        self.findings: list[Finding] = []
        self.answers: list[Errors] = []
        """Distinct answers of calls on the same contents, other than the first one."""

    def run(self, case: Case, first: Errors) -> Errors:
        """Return the worst errors of calls on the same contents; add to `findings`."""
        worst, brief = first, self._slow or sum(t["nbytes"] for t in case.tensors) > LARGE_BYTES
        for _ in range(1 if self._slow else REPEATS):
            errors = self._judge(case, self._memory.call(case, known=first, outputs_only=True),
                                 first)
            worst = errors.worse(worst)
            if errors.digests not in [known.digests for known in (first, *self.answers)]:
                self.answers.append(errors)
            if not errors.right:
                return worst
        last = self._change_contents(case, first, (MOST_MOVES,) if brief else (MOST_MOVES, 1))
        if not self.findings:
            self._read_again(case, last, brief)
        return worst

    def _change_contents(self, case: Case, last: Errors, amounts: tuple[int, ...]) -> Errors:
        """Change many elements in place, then one; the answer must follow each time."""
        for most in amounts:
            moves = draw_moves(case, most)
            if not moves:
                break
            self.oracle.exchange(case, moves)
            weights = [tensor["name"] for tensor in case.tensors if tensor["weight"]]
            errors = self._judge(case, self._memory.call(case, outputs_only=True,
                                                         touched=weights), None)
            if not errors.right:
                what = "the results for the old ones" if errors.digests == last.digests \
                    else "wrong results"
                self._reject("stale-output", case, "new contents at the same addresses gave "
                             + what)
                break
            last = errors
        return last

    def _read_again(self, case: Case, last: Errors, brief: bool) -> None:
        """Check that outputs stay the same after a while and after another call."""
        if not brief and self._reread(case, last, elsewhere=False).digests != last.digests:
            self._reject("threads", case, "its outputs changed after the call had returned")
            return
        later = self._reread(case, last, elsewhere=True)
        if later.digests == last.digests:
            return
        written = sum(tensor["role"] in ("output", "inout") for tensor in case.tensors)
        if later.digests[:written] != last.digests[:written]:
            self._reject("threads", case, "its outputs changed during a call on other buffers")
        else:
            self._reject("aliased-output", case, "the next call overwrote what it had returned")

    def _reread(self, case: Case, last: Errors, *, elsewhere: bool) -> Errors:
        """Judge the last call's outputs again: after a wait, and after another call if `elsewhere`.
        """
        if elsewhere:
            other = self._memory.slots - 1
            self._memory.place(case, other, reverse=True)
            self._memory.run(other)
        time.sleep(WAIT_S)
        return self._judge(case, self._memory.read_again(case, last), last)

    def _reject(self, rule: str, case: Case, text: str) -> None:
        self.findings.append(Finding(rule=rule, severity="reject",
                                     detail=f"class {case.config_class}: {text}"))


def draw_moves(case: Case, most: int) -> dict[str, dict[int, int]]:
    """Return moves {to: from} for every input: at most `most` elements from random positions.

    Inputs with a structure or recorded values get none: moves would destroy these.
    """
    rng = random.Random(secrets.randbits(256))  # a system call for each number takes 0.1 s
    moves: dict[str, dict[int, int]] = {}
    for tensor in case.tensors:
        size = math.prod(tensor["shape"])
        if tensor["role"] == "input" and size > 1 and not (
                tensor.get("structure") or tensor.get("data")):
            moves[tensor["name"]] = {to: (to + rng.randrange(1, size)) % size
                                     for to in rng.sample(range(size), min(size, most))}
    return moves
