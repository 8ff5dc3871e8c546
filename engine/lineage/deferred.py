"""Chooses which deferred gain a person reviews next."""

from __future__ import annotations

from engine.judge import candidate as candidates
from engine.judge.candidate import JudgedCandidate
from engine.lineage.promote import Keeper
from harness.errors import InputError


def ask_next(keeper: Keeper) -> None:
    """Ask a person about the best deferred gain at the end of a run, if none is waiting already.

    Gains on an outdated base are closed: only a round can try them again.
    """
    context, setup = keeper.context, keeper.setup
    best = setup.repo.best
    waiting = context.reader.candidates(setup.id, states=("waiting",))
    deferred: list[JudgedCandidate] = []
    for candidate in context.reader.candidates(setup.id, states=("verified",)):
        verdict = context.recorded(candidate.id, "verify", candidate.base_tree)
        try:
            entry = candidates.load(setup, candidate)
        except InputError as error:
            context.writer.set_candidate_state(setup.id, candidate.id, "closed", reason=str(error))
            continue
        if verdict is None or candidate.base_commit != best:
            keeper.refuse(entry, "runner-up", "another was kept, and the campaign has ended")
        else:
            deferred.append(keeper.record(entry, verdict, "verify"))
    if deferred and not any(candidate.base_commit == best for candidate in waiting):
        keeper.ask(max(deferred, key=lambda judged: judged.verdict.speedup or 0.0))
