"""A snapshot holds what the screens show of a journal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.json import encode

from engine.journal.judged_rows import VerdictRow
from engine.journal.liveness import Lease
from engine.journal.read import Reader
from engine.journal.write import Writer
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.harmless import harmless
from kopt_tui.snapshot.snapshot import Focus, Snapshot
from kopt_tui.snapshot.snapshot_builder import LOG_LINES, Builder
from kopt_tui.widgets.about_pane import state_spans
from kopt_tui.widgets.classes_pane import ClassesPane
from tests.support.dashboards.dashboard_journal import (
    CAMPAIGN,
    HOSTILE,
    LONG,
    NOW,
    Journal,
    campaign,
    candidate_id,
    make,
    verdict_of,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make(tmp_path)


def build(workspace: Path, focus: Focus) -> Snapshot:
    reader = Reader(workspace)
    try:
        return Builder(workspace, reader, lambda: NOW).snapshot(focus)
    finally:
        reader.close()


def test_snapshot_holds_what_the_screens_show(workspace: Path) -> None:
    snapshot = build(workspace, Focus(CAMPAIGN, candidate_id(3, "plan-1")))
    row, view, candidate = snapshot.campaigns[0], snapshot.view, snapshot.candidate
    assert (row.id, row.waiting, row.trend) == (CAMPAIGN, 1, (1.0, 1.81, 3.12))
    assert view is not None and candidate is not None and candidate.candidate is not None
    assert [row.slot.slot for row in view.slots] == ["search", "plan-1", "rewrite", "fixed"]
    assert [line.outcome for line in view.verdicts[:4]] == ["ask", "regression", "reject", "keep"]
    assert view.classes is not None and view.classes.title.endswith("kept")
    assert [(p.round, p.best) for p in view.chart] == [(0, 1.0), (1, 1.81), (2, 3.12)]
    assert candidate.patch.startswith("diff --git a/rmsnorm.c") and not candidate.patch_note
    assert candidate.waiting is not None and candidate.waiting.verdict == 10
    assert snapshot.waiting == (candidate.waiting,)


@pytest.mark.parametrize("fields", [{"state": "finished"}, {"round": 4}])
def test_keep_after_a_round_is_in_chart_and_trend(workspace: Path, fields: dict[str, Any]) -> None:
    """A person may approve after the last round or during the next one."""
    writer = Writer(workspace)
    writer.end_round(CAMPAIGN, 3, outcome="tie", best_speedup=3.12)
    writer.set_campaign(CAMPAIGN, kind="campaign.state", payload={}, **fields)
    before = build(workspace, Focus(CAMPAIGN))
    writer.add_decision(CAMPAIGN, candidate_id(3, "plan-1"), "keep", "approved", round=3,
                        actor="ann@box")
    writer.set_campaign(CAMPAIGN, kind="campaign.best", payload={}, speedup=4.0)
    writer.close()
    after = build(workspace, Focus(CAMPAIGN))
    assert before.view is not None and after.view is not None
    assert before.campaigns[0].trend == (1.0, 1.81, 3.12, 3.12)
    assert after.campaigns[0].trend == (1.0, 1.81, 3.12, 3.12, 4.0)
    assert [point.best for point in after.view.chart] == [1.0, 1.81, 3.12, 3.12, 4.0]
    assert after.view.chart[-1].outcome == "kept"


@pytest.mark.parametrize(("kind", "state", "outcome"), [
    ("reject", "closed", "not kept"), ("keep", "kept", "keep")])
def test_chart_shows_decisions_made_after_the_end_of_their_round(
        kind: Any, state: Any, outcome: str, workspace: Path) -> None:
    writer, waits = Writer(workspace), candidate_id(3, "plan-1")
    writer.set_candidate_state(CAMPAIGN, waits, "waiting", commit="w" * 40,
                               base=campaign().best_commit)
    writer.end_round(CAMPAIGN, 3, outcome="waiting", best_speedup=3.12)
    before = build(workspace, Focus(CAMPAIGN))
    writer.add_decision(CAMPAIGN, waits, kind, "", round=3, actor="ann@box")
    writer.set_candidate_state(CAMPAIGN, waits, state)
    writer.close()
    after = build(workspace, Focus(CAMPAIGN))
    assert before.view is not None and after.view is not None
    assert [view.chart[-1].outcome for view in (before.view, after.view)] == ["waiting", outcome]


def test_stage_and_phase_have_an_age_while_an_engine_works(workspace: Path) -> None:
    writer = Writer(workspace)
    writer.set_campaign(CAMPAIGN, kind="campaign.state", payload={}, phase="verify")
    writer.tick_slot(CAMPAIGN, 3, "fixed", stage="waiting", detail="waiting for cpu: held by x")
    writer.tick_slot(CAMPAIGN, 3, "fixed", stage="waiting", detail="waiting for cpu: held by y")
    without = build(workspace, Focus(CAMPAIGN)).view
    writer.put_lease(Lease(campaign=CAMPAIGN, host="elsewhere boot ns", pid=77, started=1.0,
                           epoch=1, heartbeat=time.time() + 1e6))
    writer.close()
    reader, now = Reader(workspace), time.time()
    first = Builder(workspace, reader, lambda: now + 42).snapshot(Focus(CAMPAIGN)).view
    later = Builder(workspace, reader, lambda: now + 130).snapshot(Focus(CAMPAIGN)).view
    reader.close()
    assert without is not None and first is not None and later is not None
    assert without.row.phase_age == "" and without.slots[3].age == ""
    assert (first.row.phase_age, first.slots[3].age) == ("40 s", "40 s")
    assert (later.row.phase_age, later.slots[3].age) == ("2 min", "2 min")


def test_phase_has_an_age_also_if_its_start_is_no_longer_in_the_log(workspace: Path) -> None:
    writer = Writer(workspace)
    writer.set_campaign(CAMPAIGN, kind="campaign.state", payload={}, phase="verify")
    with writer.transaction():
        for _ in range(LOG_LINES + 1):
            writer.event(CAMPAIGN, "log", message="x")
    writer.put_lease(Lease(campaign=CAMPAIGN, host="elsewhere boot ns", pid=77, started=1.0,
                           epoch=1, heartbeat=time.time() + 1e6))
    writer.close()
    reader, now = Reader(workspace), time.time()
    row = Builder(workspace, reader, lambda: now + 130).snapshot(Focus("")).campaigns[0]
    reader.close()
    assert row.phase_age == "2 min"
    text = "".join(part for part, _ in state_spans(row))
    assert " for 2 min" in text


def test_classes_are_the_baselines_after_a_rollback_to_the_baseline(workspace: Path) -> None:
    journal = Journal(workspace)
    verdict = verdict_of(1.0, 0.01, "")
    journal.put(VerdictRow(
        id=99, campaign=CAMPAIGN, candidate="baseline", purpose="baseline", body=encode(verdict),
        incumbent_tree="t" * 40, harness_version="1", valid=True, correct=True, at=NOW - 2000,
        latency_us=verdict.latency_us, speedup=1.0, low=0.99, high=1.01))
    with journal.db:
        journal.db.execute("UPDATE campaigns SET best_commit = base_commit WHERE id = ?",
                           (CAMPAIGN,))
    journal.event(CAMPAIGN, NOW, "rollback", CAMPAIGN, commit="b" * 40, undone=["c" * 40])
    journal.close()
    view = build(workspace, Focus(CAMPAIGN)).view
    assert view is not None and view.classes is not None
    assert view.classes.title == "the baseline, which is the best again"
    assert view.classes.rows == verdict.rows
    pane = ClassesPane()
    pane.content = view.classes
    shown = "".join(part for line in pane.compose_lines(100) for part, _ in line)
    assert "same code" in shown and "noise [0.99, 1.01]" in shown and "uncertain" not in shown
    line = next(line for line in view.verdicts if line.purpose == "baseline")
    assert (line.speedup, line.reason) == ("noise [0.99, 1.01]", phrases.ITSELF)


def test_hostile_text_becomes_one_harmless_line(workspace: Path) -> None:
    snapshot = build(workspace, Focus(CAMPAIGN, candidate_id(2, "fixed")))
    assert snapshot.candidate is not None and snapshot.candidate.candidate is not None
    claim = snapshot.candidate.candidate.hypothesis
    assert claim.startswith("[red]x[/]") and claim != HOSTILE
    texts = msgspec.json.encode(snapshot).decode()
    assert "\\u001b" not in texts and "\\u0007" not in texts and "\u202e" not in texts
    assert snapshot.view is not None
    assert max(len(row.slot.hypothesis) for row in snapshot.view.slots) < len(LONG)


def test_harmless_cleans_texts_of_records_inside_tuples(workspace: Path) -> None:
    row = msgspec.structs.replace(campaign(), reason="a\x1b[31mb\nc")
    assert harmless((row, 3, None)) == (msgspec.structs.replace(row, reason="ab c"), 3, None)


def test_changed_or_missing_patch_is_reported(workspace: Path) -> None:
    patch = next((workspace / CAMPAIGN / "patches").iterdir())
    patch.write_text("something else")
    focus = Focus(CAMPAIGN, candidate_id(3, "plan-1"))
    changed = build(workspace, focus).candidate
    patch.unlink()
    gone = build(workspace, focus).candidate
    assert changed is not None and "hash" in changed.patch_note
    assert gone is not None and "cannot be read" in gone.patch_note and gone.patch == ""


def test_missing_candidate_is_reported(workspace: Path) -> None:
    view = build(workspace, Focus(CAMPAIGN, "nosuch")).candidate
    assert view is not None and view.candidate is None and "nosuch" in view.missing
