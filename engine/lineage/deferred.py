"""Gains that stand back while a better one waits for a person: whose turn is it next?"""

from __future__ import annotations

from engine.judge import candidate as candidates
from engine.judge.candidate import JudgedCandidate
from engine.lineage.promote import Keeper
from harness.errors import InputError


def ask_next(keeper: Keeper) -> None:
    """At the end of a run: put the best that stands back to a person, if nobody waits any more.

    What stands on a base that has moved is closed; a round would have tried it again.
    """
    context, setup = keeper.context, keeper.setup
    best = setup.repo.best
    waiting = context.reader.candidates(setup.id, states=("waiting",))
    standing: list[JudgedCandidate] = []
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
            standing.append(keeper.record(entry, verdict, "verify"))
    if standing and not any(one.base_commit == best for one in waiting):
        keeper.ask(max(standing, key=lambda judged: judged.verdict.speedup or 0.0))
