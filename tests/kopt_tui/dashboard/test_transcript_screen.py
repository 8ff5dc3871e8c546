"""Tests the view of an agent's slot: its row, and its transcript during and after the work."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.pilot import Pilot

from engine.campaign.folder import Folder
from engine.journal.liveness import Lease
from engine.journal.records import CandidateTask
from engine.journal.write import Writer
from engine.task import Task
from kopt_tui.dashboard.dashboard import Dashboard
from kopt_tui.screens.transcript import TranscriptScreen
from kopt_tui.widgets.transcript_pane import TranscriptPane
from kopt_tui.widgets.transcript_rows import cuts
from tests.support.agents import transcript_case as case
from tests.support.dashboards.dashboard_journal import (
    CAMPAIGN,
    HOSTILE,
    Journal,
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
    case.add_slot(tmp_path)
    return tmp_path


async def opened(pilot: Pilot[None], wanted: str) -> TranscriptPane:
    """Open the transcript of the agent's slot; wait until it shows a text; return its pane."""
    app = pilot.app
    assert isinstance(app, Dashboard)
    await until(pilot, "► running")
    await pilot.press("G", "enter")
    await until(pilot, wanted)
    assert isinstance(app.screen, TranscriptScreen)
    return app.screen.transcript


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_row_of_an_agent_shows_step_cost_times_and_what_it_waits_for(
        workspace: Path, size: tuple[int, int]) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=size) as pilot:
        await until(pilot, "► running")
        await pilot.press("G")
        row = next(line for line in (await until(pilot, "agent-1")).splitlines()
                   if "agent-1" in line)
        for part in ("asking", "40 s", "step 3/60", "$0.0123", "2 min", "cc -O3 rmsnorm.c"):
            assert part in row
        writer = Writer(workspace)
        writer.hold(CAMPAIGN, 1)
        writer.tick_slot(CAMPAIGN, 3, case.SLOT, stage="waiting", detail="asked again in 4 s")
        writer.close()
        await until(pilot, "step 3/60 $0.0123 2 min  asked again in 4 s")


async def test_transcript_follows_its_end_until_someone_scrolls_up(workspace: Path) -> None:
    path = case.path_of(workspace)
    case.write(path, *case.session(20))
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        pane = await opened(pilot, "Idea 20")
        for part in ("step 20 model $0.0820", "step 20 output ✓ exit 0", "$ sed -i s/LANES/20/",
                     "20.7 us", "round 3, attempt 1", "asking 40 s", "keep a row in registers"):
            assert part in shown(app)
        case.write(path, *case.step(21, "Idea 21", "make", "fails", 2))
        await until(pilot, "step 21 output ✗ exit 2")
        await pilot.press("k", "pageup")
        text = await until(pilot, "held; G follows")
        with path.open("ab") as file:
            file.write(b'{"step":22,"at":1.0,"role":"assistant","te')
        count = len(pane.entries)
        case.write(workspace / "next", *case.step(22, "Idea 22", "make", "done"))
        with path.open("ab") as file:
            file.write(b'xt":"torn"}\n' + (workspace / "next").read_bytes())
        await until(pilot, lambda: len(pane.entries) == count + 3)
        assert shown(app).splitlines()[4:] == text.splitlines()[4:], "held rows stay in place"
        await pilot.press("G")
        assert "held" not in await until(pilot, "step 22 output")
        await pilot.press("escape")
        await until(pilot, "verdicts")


async def test_attempt_that_begins_while_its_slot_is_shown_is_read_from_its_start(
        workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "attempt 1 of agent-1 in round 3 has no transcript: an agent")
        assert "when it has ended, other workers none" in " ".join(shown(app).split())
        case.write(case.path_of(workspace), *case.session(1))
        await until(pilot, "Idea 1")


async def test_search_steps_through_matches_and_wraps_around(workspace: Path) -> None:
    case.write(case.path_of(workspace), *case.session(20))
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "Idea 20")
        await pilot.press("slash", *"IDEA 1")
        await until(pilot, "/IDEA 1 in 11 of 42 entries")  # 1 and 10 to 19
        await until(pilot, "▸ Idea 19: more")
        await pilot.press("enter", "n")
        await until(pilot, "▸ Idea 1: more")
        await pilot.press("N", "N")
        await until(pilot, "▸ Idea 18: more")
        case.write(case.path_of(workspace), *case.step(21, "idea 1 again", "make", "done"))
        await until(pilot, "/IDEA 1 in 12 of 44 entries")
        await pilot.press("n", "n")
        await until(pilot, "▸ idea 1 again")
        await pilot.press("escape")
        await until(pilot, lambda: "/IDEA" not in shown(app) and "▸" not in shown(app))
        assert isinstance(app.screen, TranscriptScreen)
        await pilot.press("n")
        await until(pilot, "no search is active")
        await pilot.press("slash", *"no such", "enter", "n")
        await until(pilot, "! no entry contains no such")


async def test_bracket_keys_move_from_step_to_step(workspace: Path) -> None:
    case.write(case.path_of(workspace), *case.session(9))
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        pane = await opened(pilot, "Idea 9")

        def top() -> str:
            return shown(app).splitlines()[4]

        await pilot.press("g", "right_square_bracket")
        await until(pilot, lambda: top().startswith("─ step 1 model"))
        await pilot.press("right_square_bracket", "j", "j")
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: top().startswith("─ step 2 model"))
        await pilot.press("left_square_bracket")
        await until(pilot, lambda: top().startswith("─ step 1 model"))
        await pilot.press(*["right_square_bracket"] * 9)
        await until(pilot, lambda: pane.follows)


async def test_other_attempts_are_found_also_those_of_earlier_rounds(workspace: Path) -> None:
    for round, number in ((1, 1), (3, 1), (3, 2)):
        case.write(case.path_of(workspace, round=round, number=number),
                   case.entry("assistant", f"I am attempt {number} of round {round}"))
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "I am attempt 2 of round 3")
        await pilot.press("left_curly_bracket")
        await until(pilot, "I am attempt 1 of round 3")
        await until(pilot, "attempt 1 of 2: } shows the next")
        await pilot.press("left_curly_bracket", "left_curly_bracket")
        assert "asking" not in await until(pilot, "I am attempt 1 of round 1"), "it has ended"
        await pilot.press("right_curly_bracket", "right_curly_bracket")
        await until(pilot, "I am attempt 2 of round 3")


async def test_footer_offers_the_transcript_only_for_an_agents_slot(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, "► running")
        assert "transcript" not in await until(pilot, "quit"), "a search has none"
        await pilot.press("G")
        await until(pilot, "transcript")


async def test_candidate_opens_the_attempt_that_made_it(workspace: Path) -> None:
    made = candidate_id(3, "plan-1")
    journal = Journal(workspace)
    journal.put(CandidateTask(campaign=CAMPAIGN, candidate=made, task=Task(
        slot="plan-1", kind="planned", backend="agent", hypothesis="", bottleneck="", seed=1,
        trials=0, attempt=2)))
    journal.close()
    folder = Folder(workspace / CAMPAIGN)
    for number in (1, 2, 3):
        case.write(folder.transcript(3, "plan-1", number),
                   case.entry("assistant", f"I am attempt {number}"))
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await until(pilot, "waits for you")
        for keys, shows in ((["tab"], "━ verdicts"), (["escape", "enter"], "+11 -3"),
                            (["escape", "escape", "3"], "━ waiting for you")):
            await pilot.press(*keys)
            await until(pilot, shows)
            await pilot.press("t")
            await until(pilot, "I am attempt 2")
            await until(pilot, "fuse both passes")


async def test_log_of_a_worker_without_a_transcript_is_shown(workspace: Path) -> None:
    log = Folder(workspace / CAMPAIGN).worker_log(3, case.SLOT, 1)
    log.parent.mkdir(parents=True)
    log.write_text("\n".join(f"line {number} " + HOSTILE for number in range(500)))
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=NARROW) as pilot:
        await opened(pilot, "line 499 [red]x[/]")
        await pilot.press("g")
        await until(pilot, "line 0 [red]")
        await pilot.press("slash", *"line 250", "enter")
        await until(pilot, "▸ line 250")


@pytest.mark.parametrize("size", [NARROW, WIDE, (20, 6), (3, 3)])
async def test_hostile_entries_are_rows_of_plain_text(
        workspace: Path, size: tuple[int, int]) -> None:
    case.write(
        case.path_of(workspace), case.entry("user", HOSTILE * 200),
        *case.step(2, "\n" * 900 + HOSTILE, HOSTILE + "\n\x1b[3J", "日本語 \t" * 3000 + "\r\x9b2J",
                   1),
        case.entry("note", "y" * 16_000, 3), case.entry("assistant", "", 4, command="true"))
    with case.path_of(workspace).open("ab") as file:
        file.write(b'nonsense\n{"step":5,"at":1e999,"role":"tool","text":"\\u001b[2Jx"}\n'
                   b'{"step":6,"at":-1e300,"role":"note","text":"early"}\n' + b"z" * 600_000)
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.snapshot.view)
        app.open_transcript(CAMPAIGN, attempt=case.attempt())
        await until(pilot, lambda: any(pane.entries for pane in app.screen.query(TranscriptPane)))
        for key in ("g", *["pagedown"] * 6, "slash", "x", "enter", "n", "n", "N",
                    "left_square_bracket", "G", "z"):
            await pilot.press(key)
            for line in shown(app).splitlines():
                assert cell_len(line) <= size[0] and line.isprintable()


@given(line=st.text(alphabet="ab 日é[\u0301", max_size=80), room=st.integers(8, 30),
       by_word=st.booleans())
def test_rows_of_a_line_contain_the_whole_line_and_fit(line: str, room: int, by_word: bool) -> None:
    parts = [line[start:end] for start, end in cuts(line, room, by_word=by_word)]
    assert "".join(parts) == line
    assert all(cell_len(part.rstrip()) <= room for part in parts)
