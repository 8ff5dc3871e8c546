"""rounds/round-N/summary.md: what a round tried, what was measured, and what was decided."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from engine.history import change_summary
from engine.history.campaign_view import JournalView
from engine.history.history import CampaignHistory
from engine.history.round_resume import OUTAGE
from engine.journal import model_costs
from engine.journal.judged_rows import DecisionRow
from engine.journal.records import Round, Slot
from engine.records import measured, present_limits, transfer_audit
from engine.records.templates import render_page
from harness.formats import quantities
from harness.formats.text import one_line
from harness.verdict import Verdict

OUTCOMES = {"baseline": "BASELINE", "keep": "ACCEPTED",
            "waiting": "WAITING FOR APPROVAL", "not kept": "ROLLED BACK", "tie": "ROLLED BACK",
            "regression": "ROLLED BACK", "failed": "ROLLED BACK"}
"""The word for a round's outcome; a change that is not kept counts as rolled back."""
MOST_FAULTS, MOST_REASON = 5, 300
"""Reasons of failed slots that the report shows, and characters of each."""
NO_CANDIDATE = "NO CANDIDATE"
"""The decision of a round whose slots all failed or found nothing better."""


def page(view: JournalView, round: Round) -> str:
    """Return a round's summary.md."""
    past, n = view.history, round.n
    decision, verdict = shown(view, round, later=True) or (None, None)
    outcome = past.outcome_now(round)
    keeps = [keep for keep in past.keeps if keep.round == n]
    regression = past.regression(round)
    return render_page(
        "round_summary", view=view, round=round, keeps=keeps,
        best=_best_and_later(view, round, keeps),
        kept_for=kept_splits(view, round, later=True), shown=decision, verdict=verdict,
        correct="" if verdict is None else _correctness_text(verdict),
        classes="" if verdict is None else measured.classes_of_baseline(verdict)
        if decision is None else measured.classes(verdict),
        models=model_costs.of_round(view.costs, n), outcome=outcome,
        decision=decision_word(past, round), late=[
            decision for decision in past.decisions_of(n)
            if decision.kind != "keep" and not measured.is_within(decision, round)],
        slots=[(slot.slot, slot.kind, slot.backend,
                f"{(past.candidates.get(slot.candidate) or slot).hypothesis}"
                f"{scope_note(slot.scope, round)}", slot.bottleneck,
                slot.stage, slot.detail) for slot in view.slots.get(n, ())],
        changes=[_change(view, decision) for decision in past.decisions_of(n)],
        limits=[(bottleneck.id, bottleneck.kernel, bottleneck.config_class, bottleneck.limiter,
                 present_limits.value(bottleneck),
                 bottleneck.detail, bottleneck.advice) for bottleneck in past.surveys.get(n, ())],
        checks=transfer_audit.of_round(past, n), fate=lambda id: _fate(past, id),
        regression=regression and measured.regressions(view, [regression]),
        candidate=past.candidates.get(decision.candidate) if decision else None,
        directions=_directions(view, n)[:3])


def decision_word(past: CampaignHistory, round: Round) -> str:
    """Return the word for what the round's outcome means for the kept commits."""
    word = OUTCOMES.get(past.outcome_now(round), "not ended")
    return word if word != "ROLLED BACK" or past.decisions_of(round.n) else NO_CANDIDATE


def without_candidate(view: JournalView, n: int) -> list[Slot]:
    """Return the slots of a round that brought no candidate."""
    return [slot for slot in view.slots.get(n, ()) if not slot.candidate]


def fruitless_slots(view: JournalView) -> list[str]:
    """Return how many slots brought no candidate, and why some failed, most frequent reason first.
    """
    slots = [slot for round in view.history.attempts for slot in without_candidate(view, round.n)]
    stages = Counter(slot.stage for slot in slots).most_common()
    faults = Counter(_fault(slot) for slot in slots
                     if slot.stage in ("failed", OUTAGE)).most_common(MOST_FAULTS)
    return [] if not slots else [
        "Slots without a candidate: " + ", ".join(f"{n} {stage}" for stage, n in stages) +
        "; rounds/ has what they tried.",
        *(f"{quantities.counted(n, 'slot')} of {fault}" for fault, n in faults)]


def _fault(slot: Slot) -> str:
    name, detail = slot.option or slot.backend, one_line(slot.detail, MOST_REASON)
    return f"{name}: {detail.removeprefix(f'{name} ')}"


def _fate(past: CampaignHistory, candidate: str) -> str:
    """Return what became of a candidate that is not kept, "" for a kept one."""
    if any(keep.candidate == candidate for keep in past.keeps):
        return ""
    waits = candidate in {member.id for member in past.line}
    return ", not kept yet: it is on the waiting line" if waits else \
        ", and not kept, for reasons other than the audit"


def best(round: Round) -> str:
    return quantities.speedup(round.best_speedup) or "not measured"


def _best_and_later(view: JournalView, round: Round, keeps: Sequence[DecisionRow]) -> str:
    """Return the best speedup at the round's end, then each speedup kept from this round later."""
    headlines = {row.candidate: row for row in view.history.verdicts.values()
                 if row.purpose == "headline" and row.correct}
    later = [f"{quantities.speedup(row.speedup)} with {keep.commit[:12]}, kept after the round"
             for keep in keeps if not measured.is_within(keep, round)
             and (row := headlines.get(keep.commit[:12])) is not None]
    return "; ".join([best(round), *later])


def kept_splits(view: JournalView, round: Round, *,
                later: bool = False) -> list[tuple[DecisionRow, str]]:
    """Return the kept splits of a round with the config classes that they serve; if `later`, also
    splits that were approved after the round.
    """
    return [(keep, "; ".join(split.summary for split in view.splits[keep.commit]))
            for keep in view.history.keeps if keep.round == round.n and keep.commit in view.splits
            and (later or measured.is_within(keep, round))]


def scope_note(scope: str, round: Round) -> str:
    """Return the note on a slot or candidate whose scope differs from its round's."""
    return f"; scope: {scope}" if scope and scope != round.scope else ""


def shown(view: JournalView, round: Round, *,
          later: bool = False) -> tuple[DecisionRow | None, Verdict] | None:
    """Return the round's kept verdict, else its fastest, else its last, with the decision on it.

    `later` also counts decisions made after the round's end. For the baseline's round there is no
    decision. None if nothing was judged.
    """
    if round.outcome == "baseline":
        verdict = measured.best_verdict(view.history.until(round.ended_at or round.started_at))
        return None if verdict is None else (None, verdict.verdict)
    judged = measured.of_round(view.history, round, later=later)
    kept = [pair for pair in judged if pair[0].kind == "keep"]
    timed = sorted((pair for pair in judged if pair[1].speedup is not None),
                   key=lambda pair: pair[1].speedup or 0.0)
    candidates = kept or timed or judged
    return candidates[-1] if candidates else None


def _correctness_text(verdict: Verdict) -> str:
    if not verdict.valid or not verdict.correct:
        return f"no: {verdict.rejected_reason or 'wrong results'}"
    used = verdict.error_budget_used
    return "yes, every class" + (
        "" if used is None else f"; {quantities.percent(used)} of the error allowed")


def _change(view: JournalView, decision: DecisionRow) -> tuple[str, ...]:
    candidate = view.history.candidates.get(decision.candidate)
    return (decision.candidate[:12], candidate.slot if candidate else "",
            change_summary.describe(view.history.folder, candidate), decision.kind,
            decision.reason, decision.actor)


def _directions(view: JournalView, n: int) -> list[str]:
    """Return the next round's directions; if unknown yet, those that the best's limits suggest."""
    if next_review := view.reviews.get(n + 1):
        return list(next_review.directions)
    ended = next((round.ended_at for round in view.history.rounds if round.n == n), None)
    return present_limits.directions(view.history.surveys.get(n + 1, ()) or
                                     present_limits.of_best(view.history.until(ended or math.inf)))
