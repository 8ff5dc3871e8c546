"""The end of a round: the best gain is kept, the others are tried again on the new best."""

from __future__ import annotations

from engine.failpoint import failpoint
from engine.judge import candidate as candidates
from engine.judge.candidate import JudgedCandidate
from engine.rounds import judging
from engine.rounds.active_round import ActiveRound
from harness.errors import InputError, KoptError


def keep_best(round: ActiveRound) -> None:
    """Keep, defer or re-try the round's gains, the fastest first."""
    pending = list(round.gains)
    while pending:
        pending.sort(key=lambda gain: gain.verdict.speedup or 0.0, reverse=True)
        best = pending.pop(0)
        if best.entry.candidate.base_commit != round.setup.repo.best:
            if again := _retry_on_new_best(round, best):
                pending.append(again)
        elif best.ruling.kind == "ask":
            _ask_or_defer(round, best)
        elif round.keeper.keep(best, refuse=round.slots.refuse):
            round.slots.end_of(best.entry.candidate, "kept", best.ruling.reason)


def _ask_or_defer(round: ActiveRound, judged: JudgedCandidate) -> None:
    """Put a gain to a person, or defer it while one at least as fast waits for approval."""
    if ahead := _faster_waiting(round, judged):
        round.slots.defer(judged, f"deferred: {ahead} is waiting for approval")
    else:
        round.slots.ask(judged)


def _faster_waiting(round: ActiveRound, judged: JudgedCandidate) -> str:
    """Return the waiting candidate on the same base that is at least as fast, or ""."""
    for waiting in round.context.reader.candidates(round.setup.id, states=("waiting",)):
        if waiting.base_commit == judged.entry.candidate.base_commit:
            verdict = round.context.recorded(waiting.id, "verify", waiting.base_tree)
            if verdict is not None and (verdict.speedup or 0.0) >= (judged.verdict.speedup or 0.0):
                return waiting.id
    return ""


def _retry_on_new_best(round: ActiveRound, judged: JudgedCandidate) -> JudgedCandidate | None:
    """Rebase a runner-up on the new best and judge it there; return it if it is still a gain."""
    entry, writer = judged.entry, round.context.writer
    try:
        moved = candidates.rebase(round.setup, entry, round.setup.repo.best, round.n)
    except InputError:
        _close_runner_up(round, judged, "conflicts with what was kept")
        return None
    if moved is None:
        _close_runner_up(round, judged, "the new best already contains this change")
        return None
    with writer.transaction():
        is_new = writer.add_candidate(moved.candidate, form_of=entry.id)
        failpoint("retry.captured")
        if is_new:
            round.keeper.refuse(entry, "runner-up", f"tried again on the new best as {moved.id}",
                                verdict=judged.verdict_id)
    if not is_new:
        _close_runner_up(round, judged, f"on the new best it is {round.keeper.known_as(moved.id)}")
        return None
    round.slots.tick(entry.candidate, "again, on the new best")
    try:
        again = round.keeper.judge(moved, "verify")
    except KoptError as fault:
        judging.take_fault(round, moved, fault)
        return None
    round.records.verdict(round.n, again)
    if again.is_gain:
        writer.set_candidate_state(round.setup.id, moved.id, "verified",
                                   reason=again.ruling.reason)
        return again
    round.slots.close(again)
    return None


def _close_runner_up(round: ActiveRound, judged: JudgedCandidate, reason: str) -> None:
    round.slots.refuse(judged.entry, "runner-up", reason, verdict=judged.verdict_id)
