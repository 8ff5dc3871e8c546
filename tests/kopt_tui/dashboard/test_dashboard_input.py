"""No random input ends the dashboard: fast keys, mouse events, pastes and new sizes."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs
from textual import events
from textual.geometry import Size
from textual.pilot import Pilot

from engine.journal.liveness import Lease
from kopt_tui.dashboard.dashboard import Dashboard
from kopt_tui.screens.base import KoptScreen
from kopt_tui.widgets.keys import KEYS
from tests.support.agents import transcript_case
from tests.support.dashboards.dashboard_journal import CAMPAIGN, make, own
from tests.support.dashboards.dashboard_pilot import open_app, until
from tests.support.dashboards.dashboard_terminal import Terminal, dashboard

TYPED = sorted({name for key in KEYS for name in key.keys.split(",")} | {
    *"keptrulds!3é日", "backspace", "space", "f1", "delete", "ctrl+q", "ctrl+z", "ctrl+backslash"})
OPENING = ["question_mark", "ctrl+p", "escape", "enter", "a", "x", "S", "p", "ctrl+c", "slash", "t"]
"""Keys that open and close screens; 40 % of the random events are presses of these."""
EXTREMES = [(2, 3), (1, 1), (20, 6), (80, 24), (109, 30), (400, 100)]
sizes = st.sampled_from(EXTREMES) | st.tuples(st.integers(2, 400), st.integers(3, 100))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dashboard")
    make(path, time.time())
    own(path, Lease(campaign=CAMPAIGN, host="box boot ns", pid=4121, started=1.0, epoch=1,
                    heartbeat=time.time() + 1e6))
    transcript_case.add_slot(path, now=time.time())
    transcript_case.write(transcript_case.path_of(path), *transcript_case.session(20))
    return path


class Typist:
    """Sends random input as a terminal does: several events at once, then a pause."""

    def __init__(self, app: Dashboard, seed: int) -> None:
        self.app, self.random = app, random.Random(seed)

    async def type(self, pilot: Pilot[None], count: int) -> None:
        while count > 0:
            burst = self.random.choice((1, 2, 3, 10, 40))
            for _ in range(burst):
                self._send()
            count -= burst
            await pilot.pause(0)

    def _send(self) -> None:
        roll, driver = self.random.random(), self.app._driver
        assert driver is not None
        if roll < 0.85:
            key = self.random.choice(OPENING if roll < 0.4 else TYPED)
            driver.send_message(events.Key(key, key if len(key) == 1 else None))
        elif roll < 0.93:
            self._click()
        elif roll < 0.96:
            driver.send_message(events.Paste(self.random.choice(
                ["", "keep\nq\x1b[2J", "日本語" * 200, "\ufffd"])))
        else:
            size = Size(*self.random.choice(EXTREMES))
            driver._size = (size.width, size.height)
            driver.send_message(events.Resize(size, size))

    def _click(self) -> None:
        assert self.app._driver is not None
        x, y = self.random.randrange(120), self.random.randrange(40)
        kinds = self.random.choice((
            (events.MouseDown, events.MouseUp) * 2, (events.MouseScrollDown,),
            (events.MouseScrollUp,), (events.MouseMove,), (events.MouseUp,)))
        for kind in kinds:
            self.app._driver.send_message(kind(
                widget=None, x=x, y=y, delta_x=0, delta_y=0, button=1, shift=False, meta=False,
                ctrl=False, screen_x=x, screen_y=y))


async def survive(workspace: Path, size: tuple[int, int], seed: int, count: int) -> None:
    """Send random input, then check that the dashboard still answers."""
    app = open_app(workspace, campaign=CAMPAIGN if seed % 2 else "")
    app.exit = lambda *_, **__: None  # type: ignore[method-assign]
    async with app.run_test(size=size) as pilot:
        if seed % 3:
            await until(pilot, lambda: app.snapshot.at)
        await Typist(app, seed).type(pilot, count)
        await pilot.resize_terminal(80, 24)
        await pilot.press(*["escape"] * 6, "1")
        await until(pilot, "Campaigns")
        await until(pilot, lambda: app.current_mode == "campaigns")


@pytest.mark.parametrize(("size", "seed"), [((80, 24), 1), ((20, 6), 2)])
async def test_random_input_leaves_the_dashboard_alive(
        workspace: Path, size: tuple[int, int], seed: int) -> None:
    await survive(workspace, size, seed, count=100)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@settings(max_examples=25, phases=[Phase.generate])
@given(size=sizes, seed=st.integers(0, 10**6))
async def test_much_random_input_leaves_the_dashboard_alive(
        workspace: Path, size: tuple[int, int], seed: int) -> None:
    await survive(workspace, size, seed, count=500)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_random_bytes_on_a_terminal_leave_the_dashboard_alive(workspace: Path, seed: int) -> None:
    chosen = random.Random(seed)
    keys = [bytes([code]) for code in range(256) if code not in b"q\x03"]
    keys += [b"\x1b[A", b"\x1b[<0;9;9M", b"\x1b[<0;9;9m", b"\x1b[200~a\xff\x1b[201~", b"??"]
    terminal = Terminal(dashboard(workspace))
    terminal.until(b"rmsnorm_c_cpu")
    for _ in range(40):
        terminal.press(b"".join(chosen.choices(keys, k=chosen.choice((1, 5, 40)))))
        terminal.resize(*chosen.choice(EXTREMES))
        terminal.read(0.05)
    terminal.resize(80, 24)
    terminal.press(b"\x1b[201~" + b"\x03" * 8)
    assert terminal.exit_code() == 0
    terminal.close()


async def test_keys_typed_ahead_reach_the_screen_that_earlier_keys_open(workspace: Path) -> None:
    app = open_app(workspace)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, "finished")
        for key in ("ctrl+p", *"limits", "enter"):
            app._driver.send_message(events.Key(key, key))  # type: ignore[union-attr]
        await until(pilot, lambda: app.current_mode == "trace")


@pytest.mark.parametrize("keys", [
    ["question_mark"] * 3, ["question_mark", "ctrl+c", "ctrl+c"], ["a", "escape", "escape"],
    ["ctrl+p", "ctrl+p", "ctrl+p"], ["3", "enter", "enter", "escape", "escape", "escape"]])
async def test_keys_pressed_several_times_at_once_leave_one_screen(
        workspace: Path, keys: list[str]) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    app.exit = lambda *_, **__: None  # type: ignore[method-assign]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, "waits for you")
        for key in keys:
            app._driver.send_message(events.Key(key, None))  # type: ignore[union-attr]
        await pilot.pause()
        await pilot.press("escape", "escape", "1")
        await until(pilot, lambda: app.current_mode == "campaigns" and len(app.screen_stack) == 1)


async def test_random_input_leaves_a_transcript_alive(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    app.exit = lambda *_, **__: None  # type: ignore[method-assign]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.snapshot.view)
        typist = Typist(app, 3)
        for _ in range(3):
            app.open_transcript(CAMPAIGN, attempt=transcript_case.attempt())
            await until(pilot, "Idea 20" if app.size.height > 20 else "")
            await typist.type(pilot, 60)
            await pilot.resize_terminal(80, 24)
        await pilot.press(*["escape"] * 12, "1")
        await until(pilot, lambda: app.current_mode == "campaigns")


async def test_snapshots_and_events_are_ignored_while_screens_close(workspace: Path) -> None:
    app = open_app(workspace, campaign=CAMPAIGN)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, "waits for you")
        screen, snapshot = app.screen, app.snapshot
        await screen.remove_children()
        assert isinstance(screen, KoptScreen)
        screen.show(structs.replace(snapshot, waiting=(), problem="a new one"))
        screen.on_screen_resume()
        app.say("nobody sees this")
    for event in (events.Key("q", "q"), events.Paste("q"), events.MouseMove(
            None, 1, 1, 0, 0, 0, shift=False, meta=False, ctrl=False)):
        await app.on_event(event)
