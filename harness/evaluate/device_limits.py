"""What the device of an evaluation can reach, and what Triton's interpreter cannot judge."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from harness.compile.kernel import Kernel
from harness.correctness.check import CandidateFailed, CorrectnessCheck
from harness.errors import EnvironmentFault
from harness.formats.quantities import listed
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import NotJudgedHere
from harness.roofline import ceilings, measured_peaks
from harness.roofline.ceilings import Ceilings
from harness.roofline.measured_peaks import GpuCeilings
from harness.runners.session import Session
from harness.tasks.target import Target
from harness.verdict import Row, Verdict


def ceilings_of(session: Session, on_wait: Callable[[str], None] | None = None) -> Ceilings | None:
    """Return the device's ceilings; a CPU's are measured under its lock, once per machine.

    Raises EnvironmentFault when a CPU cannot be measured.
    """
    with session.lock(on_wait) if session.on_cpu else nullcontext():
        return ceilings.of_device(session.device, session.target, session.folder("ceilings"))


def peaks_of(session: Session, held: DeviceLock | None, on_measure: Callable[[], None],
             ) -> GpuCeilings | None:
    """Return a card's peaks; measure them now, under the lock `held`, if they are not cached.

    None on a CPU, for several cards, and where they cannot be measured. On a card that takes a
    single process they are only read from the cache: this session has the card's process already.
    """
    if session.on_cpu or session.several:
        return None
    peaks = measured_peaks.cached(session.device)
    if peaks is not None or held is None or session.in_process:
        return peaks
    on_measure()
    session.runners.wait_profiles()
    session.runners.wait_contexts()
    return measured_peaks.get_or_measure(session.device, session.place, held)


def not_judged(target: Target, failure: CandidateFailed) -> Verdict | None:
    """Return the verdict for a failure because this machine cannot run the candidate, else None."""
    cause = failure.__context__  # what the check caught
    if not isinstance(cause, NotJudgedHere):
        return None
    return compiled_only(target, cause.what)


def compiled_only(target: Target, why: str) -> Verdict:
    """Return the verdict on a candidate that compiles and cannot run here."""
    return Verdict(valid=True, not_judged=why, rows=tuple(
        Row(config_class=each.name, correct=False, weight=each.weight, core=each.core,
            note=f"not judged here: {why}") for each in target.classes))


def interpreted_note(target: Target) -> str:
    """Return a note on what a verdict by Triton's interpreter does not show."""
    small = [entry.name for entry in target.classes if entry.interpret_shape]
    on = f" on smaller shapes ({listed(small, 3)})" if small else ""
    return f"no GPU here: correctness by Triton's interpreter{on}, which shows no races and " \
        "accepts Python that does not compile for a GPU; not timed"


def run_check(session: Session, check: CorrectnessCheck, candidate: Kernel,
              held: DeviceLock | None) -> bool:
    """Return whether the candidate is correct. Raises CandidateFailed.

    Raises EnvironmentFault instead of blaming the candidate if the baseline fails in Triton's
    interpreter as well.
    """
    try:
        right = check.run(candidate, held)
    except CandidateFailed as failure:
        if failure.fault == "crash" and not isinstance(failure.__context__, NotJudgedHere):
            _require_baseline(session, check, candidate, held)
        raise
    if not right:
        _require_baseline(session, check, candidate, held)
    return right


def _require_baseline(session: Session, check: CorrectnessCheck, candidate: Kernel,
                      held: DeviceLock | None) -> None:
    if not session.place.interpret or not check.cases:
        return
    case = list(check.cases.values())[-1]
    with check.tolerance as tolerance:
        problem = tolerance.problem_of_baseline(case, candidate, held)
    if problem:
        raise EnvironmentFault(f"the baseline fails in Triton's interpreter: {problem}",
                               where=session.target.source, fix="judge it on a GPU")
