"""Verdicts and trials, decoded from the journal's rows."""

from __future__ import annotations

import msgspec

from engine.journal.judged_rows import VerdictRow
from engine.journal.records import TrialRow
from harness.search.trials.trials import Trial
from harness.verdict import Verdict


def verdict_of(row: VerdictRow) -> Verdict:
    """Return a row's verdict; raises msgspec.DecodeError if this version cannot read it."""
    return msgspec.json.decode(row.body, type=Verdict)


def verdict_or_none(row: VerdictRow) -> Verdict | None:
    """Return a row's whole verdict, None if this version of kopt cannot read it."""
    try:
        return verdict_of(row)
    except (msgspec.DecodeError, ValueError):
        return None


def trial_of(row: TrialRow) -> Trial:
    """Return a row's trial, as far as it is recorded."""
    return Trial(number=row.number, config=row.config, tag=row.tag, correctness=row.correctness,
                 latency_us=row.latency_us, latency_kind=row.latency_kind,
                 pct_of_roofline=row.pct_of_roofline, candidate_id=row.candidate_id,
                 kernel_id=row.kernel_id, reason=row.reason)
