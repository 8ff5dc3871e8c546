"""From a candidate to a ruling: request its verdict, judge it, retry or close what is no gain."""

from __future__ import annotations

from engine.judge.candidate import CandidateTree, JudgedCandidate
from engine.rounds import retries
from engine.rounds.active_round import ActiveRound
from engine.verify.fleet_device import FailsOnHealthyDevices, NoDeviceAvailable
from engine.verify.verifier import VerdictResult
from harness.errors import InputError, KoptError


def request(round: ActiveRound, entry: CandidateTree) -> None:
    """Request a verdict, unless the candidate's files cannot be written."""
    try:
        round.context.run_in_thread(lambda: round.setup.tree(entry.tree))
    except (InputError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        round.slots.refuse(entry, "reject", f"its files cannot be written: {error}")
        return
    round.verifying[entry.id] = entry
    round.slots.tick(entry.candidate, "waiting for the device")
    round.context.verifier.submit(round.keeper.job(entry, "verify"))


def take_verdict(round: ActiveRound, result: VerdictResult) -> None:
    """Judge the verdict that has arrived, or handle the fault that prevented it."""
    entry = round.verifying.pop(result.job.candidate, None)
    if entry is None:
        return
    if isinstance(result.fault, FailsOnHealthyDevices):
        # this candidate is the likely cause: left undecided, it would end every next engine too
        refuse_unjudged(round, entry, result.fault.what)
    elif isinstance(result.fault, NoDeviceAvailable):
        round.drain(result.fault)  # the next engine requests its verdict
    elif result.fault is not None:
        take_fault(round, entry, result.fault)
    elif result.verdict is not None:
        take_ruling(round, round.keeper.record(entry, result.verdict, "verify"))


def take_fault(round: ActiveRound, entry: CandidateTree, fault: KoptError) -> None:
    """Reject a candidate that the harness could not judge.

    Raises the fault where the task or the machine is to blame: it ends the campaign.
    """
    if fault.exit_code in (2, 3) or isinstance(fault, NoDeviceAvailable):
        raise fault
    refuse_unjudged(round, entry, str(fault))


def refuse_unjudged(round: ActiveRound, entry: CandidateTree, cause: str) -> None:
    """Reject a candidate without a verdict."""
    round.slots.refuse(entry, "reject", f"could not be judged: {cause}", stage="failed",
                       detail=cause, is_fault=True)


def take_ruling(round: ActiveRound, judged: JudgedCandidate) -> None:
    """Put a gain aside until the round ends; retry or close anything else."""
    round.records.verdict(round.n, judged)
    if judged.is_gain:
        round.gains.append(judged)
        round.slots.move(judged.entry.candidate, "verified", "verified", judged.ruling.reason)
    else:
        retry_or_close(round, judged)


def retry_or_close(round: ActiveRound, judged: JudgedCandidate) -> None:
    """Begin a repair or a split where that may help, else close the candidate."""
    candidate = judged.entry.candidate
    of_this_round = candidate.round == round.n
    if round.no_device is not None and of_this_round:
        return  # its verdict is recorded: the next engine decides whether its slot tries again
    may_begin = round.may_retry and of_this_round and candidate.slot not in round.working
    if not (may_begin and retries.begin(round, judged)):
        round.slots.close(judged)
