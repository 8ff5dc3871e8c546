"""The verdicts of a campaign: the newest as a line each, and the classes of the best one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.history.waiting_line import PROVISIONAL
from engine.journal.judged_rows import DecisionRow, VerdictRow
from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate
from engine.verify import reference_lines
from harness.formats import quantities
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.harmless import harmless, harmless_verdict
from kopt_tui.snapshot.snapshot import ClassTable, StreamLine

LINES = 80
BASELINE = "baseline"
COMPARED = {BASELINE: phrases.ITSELF, "headline": "the best commit against the baseline",
            PROVISIONAL: "with what waits for approval, against the baseline"}
"""What a verdict without a decision compares, by its purpose."""


def stream_lines(verdicts: Sequence[VerdictRow], decisions: Sequence[DecisionRow],
                 candidates: Mapping[str, Candidate]) -> tuple[StreamLine, ...]:
    """Return a line per verdict, with the newest decision on it, and per decision without one.

    The newest line is the first one.
    """
    newest = {decision.verdict: decision for decision in reversed(decisions)}
    lines = [_verdict_line(verdict, newest.get(verdict.id), candidates.get(verdict.candidate))
             for verdict in verdicts if verdict.purpose != "canary"]  # canaries fail by design
    lines += [_line(f"d{decision.id}", decision, candidates.get(decision.candidate),
                    outcome=decision.kind, reason=decision.reason)
              for decision in decisions if decision.verdict is None]
    return tuple(sorted(lines, key=lambda line: line.at, reverse=True)[:LINES])


def speedup(row: VerdictRow) -> str:
    """Return the speedup of a recorded verdict with its interval, "" if nothing was compared."""
    return phrases.noise(row.low, row.high) if row.purpose == BASELINE else \
        quantities.speedup(row.speedup, row.low, row.high)


def _verdict_line(row: VerdictRow, decision: DecisionRow | None,
                  candidate: Candidate | None) -> StreamLine:
    outcome: str
    if decision is not None:
        outcome, reason = decision.kind, decision.reason
    elif row.valid and row.correct:
        reason = COMPARED.get(row.purpose, "")
        outcome = row.purpose if row.purpose in (
            *COMPARED, "e2e", reference_lines.PURPOSE) else "measured"
    else:
        verdict = harmless_verdict(row)
        not_judged = verdict.not_judged if verdict else ""
        outcome = "not judged here" if not_judged else "incorrect" if row.valid else "invalid"
        reason = not_judged or (verdict.rejected_reason if verdict else "") or ""
    return _line(f"v{row.id}", row, candidate, outcome=outcome, reason=reason,
                 at=max(row.at, decision.at if decision else 0.0), purpose=row.purpose,
                 speedup=speedup(row))


def _line(key: str, row: VerdictRow | DecisionRow, candidate: Candidate | None, *, outcome: str,
          reason: str, at: float | None = None, purpose: str = "",
          speedup: str = "") -> StreamLine:
    return harmless(StreamLine(
        key=key, at=row.at if at is None else at, candidate=row.candidate, purpose=purpose,
        outcome=outcome, speedup=speedup, reason=reason,
        slot=candidate.slot if candidate else "",  # a verdict on the baseline has no candidate
        hypothesis=candidate.hypothesis if candidate else ""))


def best_classes(reader: Reader, campaign: Campaign, verdicts: Sequence[VerdictRow],
                 decisions: Sequence[DecisionRow]) -> ClassTable | None:
    """Return the classes of the headline, else of the verdict on what is kept, else of the fastest.

    If everything kept was rolled back, or nothing else was timed, these are the baseline's classes;
    None if nothing was timed at all.
    """
    chosen, title = _choose(reader, campaign, verdicts, decisions)
    verdict = harmless_verdict(chosen) if chosen else None
    if chosen is None or verdict is None:
        return None
    known = reference_lines.read(reader, campaign.id)
    lines = () if known is None else (
        *(f"{name}: {', '.join(filter(None, comparisons))}"
          for name, _, *comparisons in known.compare(verdict.rows)),
        known.failure or known.measured())
    is_baseline = chosen.purpose == BASELINE
    heading = f"the baseline, {title}" if is_baseline else \
        f"{phrases.short(chosen.candidate)}, {title}"
    return ClassTable(heading, verdict.rows, tuple(map(phrases.clean, lines)), is_baseline)


def _choose(reader: Reader, campaign: Campaign, verdicts: Sequence[VerdictRow],
            decisions: Sequence[DecisionRow]) -> tuple[VerdictRow | None, str]:
    headline = next((verdict for verdict in reader.verdicts(
        campaign.id, candidate=campaign.best_commit[:12]) if verdict.purpose == "headline"), None)
    if headline is not None:
        return headline, "against the baseline"
    kept = reader.candidates(campaign.id, states=("kept",))
    if kept and campaign.best_commit != campaign.base_commit:
        best = next((candidate for candidate in reversed(kept)
                     if candidate.commit == campaign.best_commit), kept[-1])
        judged = {decision.verdict for decision in decisions
                  if decision.candidate == best.id and decision.kind == "keep"}
        of_best = reader.verdicts(campaign.id, candidate=best.id)
        return next((verdict for verdict in of_best if verdict.id in judged), None) or next(
            (verdict for verdict in of_best if verdict.speedup is not None), None), "kept"
    if kept:
        return reader.newest_verdict(campaign.id, "baseline"), "which is the best again"
    timed = [verdict for verdict in verdicts if verdict.speedup is not None
             and verdict.purpose != reference_lines.PURPOSE]
    fastest = max((verdict for verdict in timed if verdict.purpose != BASELINE),
                  key=lambda verdict: verdict.speedup or 0.0, default=None)
    return (fastest, "fastest so far") if fastest else (
        next(iter(timed), None), "against itself")
