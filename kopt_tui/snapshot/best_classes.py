"""The config classes of the verdict that says most about the best kernel so far."""

from __future__ import annotations

from engine.journal.read import Reader
from engine.journal.records import DecisionRow, VerdictRow
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.cache import SnapshotCache
from kopt_tui.snapshot.snapshot import CampaignRow, ClassTable


def best_classes(reader: Reader, cache: SnapshotCache, row: CampaignRow,
                 verdicts: list[VerdictRow], decisions: list[DecisionRow]) -> ClassTable | None:
    """Return the classes of the headline, else of the newest kept verdict, else of the fastest.

    After a rollback of everything that was kept, these are the baseline's classes.
    """
    chosen, title = _choose(reader, row, verdicts, decisions)
    verdict = cache.verdict(chosen) if chosen else None
    if chosen is None or verdict is None:
        return None
    return ClassTable(f"{phrases.short(chosen.candidate)}, {title}", verdict.rows)


def _choose(reader: Reader, row: CampaignRow, verdicts: list[VerdictRow],
            decisions: list[DecisionRow]) -> tuple[VerdictRow | None, str]:
    headline = next((verdict for verdict in reader.verdicts(
        row.id, candidate=row.best_commit[:12]) if verdict.purpose == "headline"), None)
    if headline is not None:
        return headline, "against the baseline"
    kept = reader.candidates(row.id, states=("kept",))
    if kept and row.best_commit != row.base_commit:
        best = next((candidate for candidate in reversed(kept)
                     if candidate.commit == row.best_commit), kept[-1])
        judged = {decision.verdict for decision in decisions
                  if decision.candidate == best.id and decision.kind == "keep"}
        own = reader.verdicts(row.id, candidate=best.id)
        return next((verdict for verdict in own if verdict.id in judged), None) or next(
            (verdict for verdict in own if verdict.speedup is not None), None), "kept"
    if kept:
        return next(iter(reader.verdicts(row.id, candidate="baseline", limit=1)), None), \
            "which is the best again"
    timed = [verdict for verdict in verdicts if verdict.speedup is not None]
    return max(timed, key=lambda verdict: verdict.speedup or 0.0, default=None), "fastest so far"
