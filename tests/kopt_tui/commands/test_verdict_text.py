"""A recorded verdict in one line: what was withheld or rejected is no plain "not measured"."""

from __future__ import annotations

import msgspec
import pytest

from engine.journal.records import VerdictRow
from harness.verdict import Finding, Verdict
from kopt_tui.cli.verdict_text import said


@pytest.mark.parametrize(("findings", "line"), [
    ((), "✓ correct, not measured"),
    ((Finding(rule="clock", severity="note", detail="small"),), "✓ correct, not measured"),
    ((Finding(rule="incumbent-floor", severity="flag", detail="nothing is compared"),),
     "✓ correct, not measured; nothing is compared"),
    ((Finding(rule="physical-floor", severity="reject", detail="the latency is withheld"),),
     "✗ correct, but rejected; the latency is withheld")])
def test_why_nothing_was_measured_is_said(findings: tuple[Finding, ...], line: str) -> None:
    verdict = Verdict(valid=True, correct=True, audit=findings)
    assert said(VerdictRow(
        id=1, campaign="c", candidate="a", purpose="verify", incumbent_tree="", harness_version="1",
        valid=True, correct=True, latency_us=None, speedup=None, low=None, high=None,
        body=msgspec.json.encode(verdict), at=0.0)) == line
