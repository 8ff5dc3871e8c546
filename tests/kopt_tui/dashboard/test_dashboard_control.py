"""Tests requests made in the dashboard: dialogs, journal entries and answers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.journal.decoded import patch_review
from engine.journal.decoded.patch_review import PatchReview
from engine.journal.read import Reader
from kopt_tui.dashboard.dashboard import Dashboard
from kopt_tui.screens.confirm import ConfirmScreen
from tests.support.dashboards.dashboard_control_case import (
    NARROW,
    controls,
    engine_writer,
    make_workspace,
    open_dialog,
)
from tests.support.dashboards.dashboard_journal import (
    CAMPAIGN,
    Journal,
    candidate_id,
)
from tests.support.dashboards.dashboard_pilot import open_app, shown, until

WAITING = candidate_id(3, "plan-1")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_workspace(tmp_path)


async def test_approval_names_the_candidate_and_is_recorded(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await open_dialog(pilot, "a", f"Approve candidate {WAITING}?")
        text = shown(app)
        for part in ("fuse both passes", "2.31x [2.25, 2.37]", "above 2x", CAMPAIGN,
                     f"on base     {'c' * 12}"):
            assert part in text
        assert "▸  Let it wait" in text, "the safe answer has the focus"
        await pilot.press("right")
        await until(pilot, f"▸  Approve {WAITING}")
        await pilot.press("enter")
        await until(pilot, "is recorded")
        recorded = controls(workspace)
        assert [(control.verb, control.candidate, control.expected_base, control.expected_verdict)
                for control in recorded] == [("approve", WAITING, "c" * 40, 10)]
        assert "@" in recorded[0].by
        writer = engine_writer(workspace)
        writer.set_candidate_state(CAMPAIGN, WAITING, "kept", commit="d" * 40)
        writer.finish_control(recorded[0].id, "kept as dddddddd")
        writer.close()
        await until(pilot, f"» approve {WAITING[:8]}: kept as dddddddd")
        await until(pilot, lambda: "waits for you" not in shown(app))


async def test_dialog_shows_why_kopt_asks_before_a_long_list_of_classes(workspace: Path) -> None:
    classes = ", ".join(f"n={size} 2.0x faster" for size in range(1000, 1040))
    writer = engine_writer(workspace)
    writer.add_decision(CAMPAIGN, WAITING, "ask", f"2.31x; {classes}", round=2,
                        actor="engine", doubts="it is large")
    writer.close()
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await open_dialog(pilot, "a", "why it asks it is large")
        lines = [line for line in shown(app).splitlines() if "x faster" in line]
        assert "verdict     n=1000 2.0x faster" in lines[0] and lines[-1].strip("│ ").endswith("…")


async def test_dialog_shows_the_models_concern_and_the_verdict_shows_its_review(
        workspace: Path) -> None:
    review = PatchReview(candidate=WAITING, model="openai/gpt-5", concerns="a race on \x1b[31mout",
                         lines=("It fuses both passes.", "Approve it now.", "Concerns: a race"))
    writer = engine_writer(workspace)
    writer.event(CAMPAIGN, patch_review.KIND, WAITING, **msgspec.to_builtins(review))
    writer.close()
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=(120, 90)) as pilot:
        await open_dialog(pilot, "a", "concerns of openai/gpt-5 (advisory)")
        assert "▸  Let it wait" in shown(app), "the safe answer has the focus"
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, ConfirmScreen))
        await pilot.press("3")
        await until(pilot, "review by openai/gpt-5 (advisory)")
        text = shown(app)
        assert text.index("speedup") < text.index("It fuses both passes.")
        assert controls(workspace) == []


async def test_dialog_says_why_a_gain_cannot_be_approved_yet_and_records_nothing(
        workspace: Path) -> None:
    journal = Journal(workspace)
    with journal.db:
        journal.db.execute("UPDATE candidates SET base_commit = ? WHERE id = ?",
                           ("d" * 40, WAITING))
    journal.close()
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await open_dialog(pilot, "a", "! base moved: its base commit is no longer the best")
        await until(pilot, "when the campaign runs")
        await pilot.press("right", "enter")
        await until(pilot, lambda: not isinstance(app.screen, ConfirmScreen))
        await pilot.press("x")
        await until(pilot, "▸  Let it wait")
        assert controls(workspace) == []


@pytest.mark.parametrize("answer", [["enter"], ["escape"], ["q"], ["right", "left", "enter"],
                                    ["right", "escape"], ["a"], ["x", "y", "space"]])
async def test_stray_keys_never_approve(workspace: Path, answer: list[str]) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await open_dialog(pilot, "a", "Approve candidate")
        await pilot.press(*answer)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, ConfirmScreen))
        await app.workers.wait_for_complete()
        assert controls(workspace) == []


async def test_reject_works_from_the_candidate_screen(workspace: Path) -> None:
    app = open_app(workspace)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "finished")
        await pilot.press("3")
        await until(pilot, "claim")
        await pilot.press("enter")
        await until(pilot, "patch +11 -3")
        await pilot.press("x")
        await until(pilot, f"Reject candidate {WAITING}?")
        assert "type why" in shown(app)
        await pilot.press(*"quality", "backspace", "right")
        await until(pilot, "reason      qualit▏")
        await pilot.press("enter")
        await until(pilot, "not answered yet")
        assert [control.verb for control in controls(workspace)] == ["reject"]
        reader = Reader(workspace)
        [event] = reader.events_of(CAMPAIGN, "control.requested")
        reader.close()
        assert b'"reason":"qualit"' in event.payload


async def test_candidate_that_does_not_wait_cannot_be_approved(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "waits for you")
        app.open_candidate(CAMPAIGN, candidate_id(2, "rewrite"))
        await until(pilot, "all 3 classes faster")
        await pilot.press("a")
        await until(pilot, "does not wait for approval")
        assert controls(workspace) == []


async def test_candidate_decided_meanwhile_cannot_be_approved(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await open_dialog(pilot, "a", "Approve candidate")
        await pilot.press("right")
        writer = engine_writer(workspace)
        writer.set_candidate_state(CAMPAIGN, WAITING, "closed", reason="rejected elsewhere")
        writer.close()
        await until(pilot, "decided by another request")
        await pilot.press("right", "enter")
        await until(pilot, lambda: not isinstance(app.screen, ConfirmScreen))
        assert controls(workspace) == []


async def test_readonly_dashboard_refuses_every_request(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN, readonly=True)
    async with app.run_test(size=NARROW) as pilot:
        text = await until(pilot, "waits for you")
        assert "read-only" in text and "approve" not in text.splitlines()[-1]
        for key, verb in (("a", "approve"), ("x", "reject"), ("p", "pause"), ("S", "stop")):
            await pilot.press(key)
            await until(pilot, f"read-only: {verb} is refused")
        await pilot.press("j")
        await until(pilot, lambda: "is refused" not in shown(app))
        assert controls(workspace) == []


async def test_request_that_cannot_be_recorded_is_reported(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await open_dialog(pilot, "a", "Approve candidate")
        app.workspace = workspace / "kopt.db"  # a file instead of a folder
        await pilot.press("right", "enter")
        await until(pilot, f"✗ approve {WAITING[:8]} failed")


def footer(app: Dashboard) -> str:
    """Return the screen's last line."""
    return shown(app).splitlines()[-1]


async def test_footer_offers_decisions_only_if_a_candidate_waits(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "a approve  x reject")
        for state in ("waiting", "tied"):
            name = candidate_id(3 if state == "waiting" else 2, "plan-1")
            app.open_candidate(CAMPAIGN, name)
            await until(pilot, f"candidate {name}")
            offered = state == "waiting"
            await until(pilot, lambda offered=offered: ("a approve" in footer(app)) == offered)
            assert "m measure again" not in footer(app), "neither is a near gain"
            await pilot.press("escape")
        writer = engine_writer(workspace)
        writer.set_candidate_state(CAMPAIGN, WAITING, "closed", reason="no")
        writer.close()
        await until(pilot, lambda: "a approve" not in footer(app))
        assert "p pause" in footer(app)
        writer = engine_writer(workspace)
        writer.set_campaign(CAMPAIGN, kind="campaign.state", payload={}, state="paused")
        writer.close()
        await until(pilot, lambda: "p resume" in footer(app))
        writer = engine_writer(workspace)
        writer.set_campaign(CAMPAIGN, kind="campaign.state", payload={}, state="finished")
        writer.close()
        await until(pilot, lambda: not any(word in footer(app) for word in ("pause", "resume")))
        await pilot.press("3")
        await until(pilot, "no candidate waits for approval")
        assert not any(word in footer(app) for word in ("enter open", "approve", "reject"))
