"""What a machine without the right GPU cannot judge, which says nothing about a candidate."""

from __future__ import annotations

from harness.compile.kernel import Kernel
from harness.correctness.check import CandidateFailed, CorrectnessCheck
from harness.errors import EnvironmentFault
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import NotJudgedHere
from harness.runners.session import Session
from harness.tasks.target import Target
from harness.verdict import Row, Verdict


def not_judged(target: Target, failure: CandidateFailed) -> Verdict | None:
    """Return the verdict on a candidate that this machine cannot run; None if it can."""
    cause = failure.__context__  # what the check caught
    if not isinstance(cause, NotJudgedHere):
        return None
    return compiled_only(target, cause.what)


def compiled_only(target: Target, why: str) -> Verdict:
    """Return the verdict on a candidate that compiles and cannot run here."""
    return Verdict(valid=True, not_judged=why, rows=tuple(
        Row(config_class=each.name, correct=False, weight=each.weight, core=each.core,
            note=f"not judged here: {why}") for each in target.classes))


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
