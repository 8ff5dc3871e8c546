"""Check that a candidate's calls change the buffers of PyTorch modules as the baseline's do.

Outputs do not show such changes where an adapter keeps the module from call to call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.case import Case
from harness.compile.c_compiler import BuildError
from harness.compile.kernel import Kernel
from harness.correctness.baseline_runner import BaselineRunner
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import PeerDied, PeerError, decode_answer
from harness.runners.oracle_client import Oracle
from harness.runners.session import Session
from harness.runners.slots.case_memory import CaseMemory

_KEEPS = re.compile(r"register_buffer|\bBuffer\(|BatchNorm|InstanceNorm|track_running_stats")
CALLS = 3
CLOSE = 0.01
"""Largest difference of two buffers' numbers that count as equal, relative to the larger root mean
square."""


@dataclass(frozen=True, kw_only=True)
class ModuleBuffer:
    """A buffer in numbers; see harness/child/watch/module_buffers.py."""

    name: str
    numbers: tuple[float, float, float, float]

    def is_close(self, other: ModuleBuffer) -> bool:
        size = max(self.numbers[2], other.numbers[2])
        return self.name == other.name and self.numbers[0] == other.numbers[0] and all(
            abs(ours - theirs) <= CLOSE * size
            for ours, theirs in zip(self.numbers[1:], other.numbers[1:], strict=True))


def buffer_problem(session: Session, oracle: Oracle, baseline: BaselineRunner, candidate: Kernel,
                   case: Case, held: DeviceLock | None) -> str:
    """Return which buffers a candidate's calls leave unlike the baseline's, "" if none.

    Both are called equally often on the same inputs, in separate processes. Buffers that the
    baseline does not reproduce are ignored; the result is "" if either of them fails.
    """
    def after_calls(kernel: Kernel) -> list[Sequence[ModuleBuffer]]:
        with session.runners.start(kernel, lock=held) as runner:
            memory, seen = CaseMemory(oracle, runner, case), list[Sequence[ModuleBuffer]]()
            for _ in range(CALLS):
                memory.place(case)
                memory.run()
                seen.append(decode_answer(runner.ask("buffers").get("buffers"),
                                          tuple[ModuleBuffer, ...]))
            return seen

    try:
        first, *_, last = after_calls(baseline.kernel())
        changed = [buffer for buffer in last if buffer not in first]
        wrong = _missing(changed, after_calls(candidate)[-1]) if changed else []
        if not wrong or _missing(wrong, after_calls(baseline.kernel())[-1]):
            return ""
    except (BuildError, PeerError, PeerDied):
        return ""  # the candidate has run in the check; timing will report its failures
    names = ", ".join(dict.fromkeys(buffer.name for buffer in wrong))
    return f"class {case.config_class}: its calls leave other values in {names} than the baseline's"


def keeps_buffers(session: Session) -> bool:
    """Return whether the baseline may keep buffers that outputs do not show, and can be checked."""
    target, base = session.target, session.base
    return target.adapter is not None and base is not None and not session.in_process \
        and not any(arg.kind == "inout" for arg in target.args) \
        and _KEEPS.search(Path(base, target.source).read_text(errors="replace")) is not None


def _missing(expected: Sequence[ModuleBuffer],
             buffers: Sequence[ModuleBuffer]) -> list[ModuleBuffer]:
    return [buffer for buffer in expected if not any(map(buffer.is_close, buffers))]
