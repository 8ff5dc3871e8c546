"""What an engine does first after another was killed: finish keeps, roll backs, slots, files."""

from __future__ import annotations

from engine.context import EngineContext
from engine.history import round_resume
from engine.journal.records import Candidate
from engine.judge import candidate as candidates
from engine.lineage import commit, rollback
from engine.rounds.slots import RoundSlots
from engine.run.running_campaign import RunningCampaign


def recover(campaign: RunningCampaign) -> None:
    """Finish what a killed engine left half done, and remove its worktrees."""
    context, repo = campaign.context, campaign.setup.repo
    repo.unlock()  # first of all: a killed git process may have left locks
    rollback.recover(context.writer, context.reader, repo)
    commit.recover(context.writer, repo)
    for n in campaign.unfinished_rounds():
        _end_slots_of_kept(campaign, n)
    repo.remove_all()
    campaign.setup.folder.remove_parts()
    campaign.write_records()


def _end_slots_of_kept(campaign: RunningCampaign, n: int) -> None:
    """End the slots of round `n` whose candidates its engine kept.

    The slot of a candidate that a person approved waits, and stays so.
    """
    context, keeper, setup = campaign.context, campaign.keeper, campaign.setup
    stages = {slot.slot: slot.stage for slot in context.reader.slots(setup.id, n)}
    kept_by_engine = {decision.candidate for decision in context.reader.decisions(setup.id)
                      if decision.kind == "keep" and decision.actor == "engine"}
    for kept in context.reader.candidates(setup.id, states=("kept",)):
        if kept.id in kept_by_engine and stages.get(kept.slot) != "kept" and \
                round_resume.is_work_of(context.reader, kept, n):
            judged = _unformatted(context, kept)
            verdict = context.recorded(judged.id, "verify", judged.base_tree)
            reason = kept.reason if verdict is None else keeper.record(
                candidates.load(setup, judged), verdict, "verify").ruling.reason
            RoundSlots(context, keeper, n).end_of(judged, "kept", reason)


def _unformatted(context: EngineContext, kept: Candidate) -> Candidate:
    """Return a candidate before the format command, itself if that changed nothing."""
    if not kept.form_of:
        return kept
    before = context.reader.candidate(kept.form_of, context.setup.id)
    return before if before.base_commit == kept.base_commit else kept
