"""What an engine that was killed left, put right by the next one before it does anything else."""

from __future__ import annotations

from engine.context import EngineContext
from engine.history import round_resume
from engine.journal.records import Candidate
from engine.judge import candidate
from engine.lineage import commit, rollback
from engine.lineage.promote import Keeper
from engine.rounds.slots import RoundSlots


def recover(context: EngineContext, keeper: Keeper, cut_rounds: list[int]) -> None:
    """Finish roll backs and keeps, and the slots of what was kept in rounds that were cut short."""
    repo = context.setup.repo
    repo.unlock()  # whatever git is asked to do first, a killed one may have locked
    rollback.recover(context.writer, context.reader, repo)
    commit.recover(context.writer, repo)
    for n in cut_rounds:
        _end_slots(context, keeper, n)


def _end_slots(context: EngineContext, keeper: Keeper, n: int) -> None:
    """End the slots of a round of which something was kept, as its engine would have; that of a
    person's keep waits, and stays so.
    """
    stages = {slot.slot: slot.stage for slot in context.reader.slots(context.setup.id, n)}
    chosen = {decision.candidate for decision in context.reader.decisions(context.setup.id)
              if decision.kind == "keep" and decision.actor == "engine"}
    for kept in context.reader.candidates(context.setup.id, states=("kept",)):
        if kept.id in chosen and stages.get(kept.slot) != "kept" and \
                round_resume.is_work_of(context.reader, kept, n):
            judged = _unformatted(context, kept)
            verdict = context.recorded(judged.id, "verify", judged.base_tree)
            reason = kept.reason if verdict is None else keeper.record(
                candidate.load(context.setup, judged), verdict, "verify").ruling.reason
            RoundSlots(context, keeper, n).end_of(judged, "kept", reason)


def _unformatted(context: EngineContext, kept: Candidate) -> Candidate:
    """Return what a candidate was before the format command, itself if that changed nothing."""
    if not (of := kept.form_of):
        return kept
    before = context.reader.candidate(of, context.setup.id)
    return before if before.base_commit == kept.base_commit else kept
