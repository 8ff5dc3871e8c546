"""Tests what each screen shows and which keys work: modes, panes, filter, zoom, help, widths."""

from __future__ import annotations

import time
from pathlib import Path
from typing import get_args

import pytest
from rich.cells import cell_len

from engine.journal.liveness import Lease
from engine.journal.write import Writer
from kopt_tui.widgets import keys
from kopt_tui.widgets.log_pane import LogPane
from kopt_tui.widgets.pane import Pane, changed_cells, fit
from kopt_tui.widgets.slots_pane import StreamPane
from tests.support.dashboards.dashboard_journal import (
    CAMPAIGN,
    Journal,
    campaign,
    candidate_id,
    make,
    own,
)
from tests.support.dashboards.dashboard_pilot import open_app, shown, until

NARROW, WIDE = (80, 24), (200, 50)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    make(tmp_path)
    own(tmp_path, Lease(campaign=CAMPAIGN, host="box boot ns", pid=4121, started=1.0, epoch=1,
                        heartbeat=time.time() + 1e6))
    return tmp_path


async def test_each_campaign_is_one_line(workspace: Path) -> None:
    app = open_app(workspace)
    async with app.run_test(size=NARROW) as pilot:
        text = await until(pilot, "engine process 4121 on box")
        rows = text.splitlines()
        running = next(row for row in rows if "► running" in row)
        for part in (CAMPAIGN, "2 of 11", "3.12x [3.05, 3.19]", "1 ?", "13:59"):
            assert part in running
        assert "■ stopped" in text and "Nov 18" in text
        await pilot.press("j")
        await until(pilot, "12 rounds done")


@pytest.mark.parametrize(("key", "text"), [
    ("1", "no campaigns yet"), ("2", "no campaign is chosen"), ("3", "no candidate waits"),
    ("4", "no campaign is chosen"), ("6", "no campaign is chosen")])
async def test_first_visit_to_an_empty_screen_says_that_it_is_empty(
        tmp_path: Path, key: str, text: str) -> None:
    app = open_app(tmp_path)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "kopt demo")
        await pilot.press(key)
        whole = await until(pilot, text)
        assert "reading the journal" not in whole and "writing" not in whole


async def test_running_campaign_without_its_engine_is_lost(tmp_path: Path) -> None:
    make(tmp_path)
    app = open_app(tmp_path)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, f"its engine is gone; kopt resume {CAMPAIGN} continues it")
        await until(pilot, "✗ lost")


async def test_enter_opens_the_campaign_and_escape_returns(workspace: Path) -> None:
    app = open_app(workspace)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "finished")
        await pilot.press("enter")
        for part in ("waits for you: " + candidate_id(3, "plan-1")[:8], "50% measuring",
                     "▼ regression", "0.97x [0.96, 0.98]", "tall 3% slower", "best so far"):
            await until(pilot, part)
        await pilot.press("escape")
        await until(pilot, "finished")


async def test_wide_terminal_shows_all_panes(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=WIDE) as pilot:
        for part in ("slots", "verdicts", "best so far", "classes of", "bottlenecks", "log",
                     "device", "1.89x [1.85, 1.94]", "not vectorised", "rewrite…",
                     "AMD EPYC"):
            await until(pilot, part)


async def test_tab_shows_the_next_of_the_panes_that_share_a_place(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "tall 3% slower")
        await pilot.press("tab")
        for part in ("1.00x ─", "tall*", "share of peak flops", "gate", "AMD EPYC"):
            await pilot.press("tab")
            await until(pilot, part)
        await pilot.press("shift+tab")
        await until(pilot, "gate")


async def test_panes_that_share_a_place_are_all_shown_if_there_is_room(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "tall 3% slower")
        assert "tall*" not in shown(app)
        await pilot.resize_terminal(*WIDE)
        await until(pilot, "tall*")
        await pilot.resize_terminal(*NARROW)
        await until(pilot, lambda: "tall*" not in shown(app))


async def test_zoom_shows_one_pane_only(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "tall 3% slower")
        await pilot.press("tab", "z")
        await until(pilot, lambda: "━ verdicts" in shown(app) and "best so far" not in shown(app))
        assert "runner-up" in shown(app)
        await pilot.press("escape")
        await until(pilot, "best so far")


async def test_filter_keeps_matching_rows_until_escape(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "tall 3% slower")
        await pilot.press("tab", "slash", *"keep")
        await until(pilot, "/keep 2 of 10")
        assert "regression" not in shown(app)
        await pilot.press("enter", "j", "escape")
        await until(pilot, "regression")
        await pilot.press("slash", *"!keep", "enter")
        text = await until(pilot, "/!keep 8 of 10")
        assert "✓ keep" not in text


async def test_typing_a_filter_triggers_no_action(workspace: Path) -> None:
    app = open_app(workspace)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "finished")
        await pilot.press("slash", "q", "2", "question_mark")
        text = await until(pilot, "/q2?")
        assert "no row matches" in text and app.current_mode == "campaigns"


async def test_help_lists_every_key_and_can_be_searched(workspace: Path) -> None:
    app = open_app(workspace)
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, "finished")
        await pilot.press("question_mark")
        text = await until(pilot, "type to search")
        assert all(key.help in text for key in keys.KEYS)
        await pilot.press(*"only this")
        await until(pilot, lambda: "Show only this pane" in shown(app)
                    and "Leave the dashboard" not in shown(app))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: "Show only this pane" not in shown(app))


async def test_no_line_of_the_help_is_cut_at_80_columns(workspace: Path) -> None:
    app = open_app(workspace)
    async with app.run_test(size=(NARROW[0], 60)) as pilot:
        await until(pilot, "finished")
        await pilot.press("question_mark")
        text = await until(pilot, "type to search")
        box = [line for line in text.splitlines() if line.startswith("│")]
        assert all(any(key.help in line for line in box) for key in keys.KEYS)
        assert "…" not in "".join(box)


async def test_every_mode_opens_by_its_key(workspace: Path) -> None:
    app = open_app(workspace)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "finished")
        for key, title, _ in keys.MODES:
            await pilot.press(key)
            await until(pilot, lambda title=title:  # type: ignore[misc]
                        app.current_mode == title.lower())
            assert f"{key} {title}" in shown(app)
        assert {title.lower() for _, title, _ in keys.MODES} == set(app.MODES)


async def test_cursor_stays_on_its_verdict_when_new_ones_are_added(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "tall 3% slower")
        stream = app.screen.query_one(StreamPane)
        await pilot.press("tab", "j")
        chosen = stream.current
        writer = Writer(workspace)
        writer.hold(CAMPAIGN, 1)
        writer.add_decision(CAMPAIGN, candidate_id(3, "rewrite"), "tie", "a new one", round=3,
                            actor="judge")
        await until(pilot, lambda: len(stream.items) == 11)
        assert stream.current == chosen and stream.cursor == stream.items.index(chosen) > 0
        await pilot.press("g")
        writer.add_decision(CAMPAIGN, candidate_id(3, "rewrite"), "tie", "another", round=3,
                            actor="judge")
        await until(pilot, lambda: len(stream.items) == 12)
        assert stream.cursor == 0, "on the first row it follows the newest verdict"
        writer.close()


async def test_log_stays_in_place_after_scrolling_up(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, "idle, lock taken")
        log = app.screen.query_one(LogPane)
        app.screen.set_focus(log)
        await pilot.press("k", "k")
        await until(pilot, "held; G follows")
        first = log.shown[log.top]
        journal = Journal(workspace)
        for number in range(5):
            journal.event(CAMPAIGN, time.time(), "log", message=f"line {number}")
        journal.close()
        await until(pilot, lambda: log.content[-1].text.endswith("line 4"))
        assert log.shown[log.top] == first and "line 4" not in shown(app)
        await pilot.press("G")
        await until(pilot, "line 4")


@pytest.mark.parametrize("size", [
    pytest.param(NARROW, marks=pytest.mark.slow), WIDE,
    pytest.param((60, 18), marks=pytest.mark.slow), (20, 6)])
async def test_hostile_texts_are_not_markup_and_nothing_overflows(
        workspace: Path, size: tuple[int, int]) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.snapshot.at)
        for key in "123456":
            await pilot.press(key)
            await pilot.pause()
        app.open_candidate(CAMPAIGN, candidate_id(2, "fixed"))
        await until(pilot, lambda: app.snapshot.candidate)
        await pilot.pause()
        for line in shown(app).splitlines():
            assert cell_len(line) <= size[0] and line.isprintable()
        if size[0] >= 80:
            await until(pilot, "[red]x[/]")


async def test_report_screen_shows_the_report(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=(120, 60)) as pilot:
        await until(pilot, "waits for you")
        await pilot.press("6")
        text = await until(pilot, "What was kept, and why")
        assert "rmsnorm on" in text and "[red]x[/]" in text


async def test_report_shows_decisions_made_during_a_round(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=(120, 60)) as pilot:
        await until(pilot, "waits for you")
        await pilot.press("6")
        await until(pilot, "What was kept, and why")
        writer = Writer(workspace)
        writer.hold(CAMPAIGN, 1)
        writer.add_decision(CAMPAIGN, candidate_id(3, "plan-1"), "reject", "too clever", round=3,
                            actor="ann")
        writer.close()
        await until(pilot, lambda: "too clever" in app.snapshot.report)


async def test_candidate_shows_claim_verdict_audit_patch_and_history(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=WIDE) as pilot:
        await until(pilot, "tall 3% slower")
        await pilot.press("tab", "enter")
        for part in ("+11 -3", "fuse both passes", "scalar-reduction", "2.31x [2.25, 2.37]",
                     "! flag", "above-2x", "vectorised: loop at", "by judge", "18 + "):
            await until(pilot, part)
        await pilot.press("escape")
        await until(pilot, "best so far")


async def test_unreadable_journal_is_reported_on_the_bottom_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.put(campaign())
    journal.db.execute("PRAGMA user_version = 99")
    journal.close()
    app = open_app(tmp_path)
    async with app.run_test(size=NARROW) as pilot:
        assert "! " in (await until(pilot, "newer kopt")).splitlines()[-1]


async def test_no_color_removes_colours(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "tall 3% slower")
        for line in app.screen._compositor.render_strips():
            for segment in line:
                colours = (segment.style.color, segment.style.bgcolor) if segment.style else ()
                assert all(colour is None or colour.is_default for colour in colours)
        assert "✗ reject" in shown(app)


def test_key_has_one_meaning_per_screen() -> None:
    for scope in get_args(keys.Scope):
        here = [name for key in keys.KEYS if scope in key.scopes or "app" in key.scopes
                for name in key.keys.split(",")]
        assert sorted(here) == sorted(set(here)), scope


def test_fit_counts_cells_instead_of_characters() -> None:
    assert fit("日本語", 4) == "日 …" or cell_len(fit("日本語", 4)) == 4
    assert fit("abc", 5, right=True) == "  abc" and fit("abcdef", 3) == "ab…" and fit("a", 0) == ""


async def test_only_changed_cells_are_repainted(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "tall 3% slower")
        panes = [pane for pane in app.screen.query(Pane) if pane.display]
        await until(pilot, "LANES in 4..32")
        await until(pilot, lambda: all(len(pane._drawn) == pane.size.height for pane in panes))
        before = {pane: list(pane._drawn) for pane in panes}
        writer = Writer(workspace)
        writer.hold(CAMPAIGN, 1)
        writer.tick_slot(CAMPAIGN, 3, "fixed", progress=0.75)
        await until(pilot, " 75%")
        changes = {pane.TITLE: [changed_cells(a, b) for a, b in zip(before[pane], pane._drawn,
                                                                    strict=True) if a != b]
                   for pane in panes}
        assert {title: spans for title, spans in changes.items() if spans} == \
            {"slots": [(10, 12)]}
        writer.close()
