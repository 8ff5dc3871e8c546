"""Tests the dashboard in tmux and on a pseudo-terminal, also how many bytes it writes there."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.journal import liveness
from engine.journal.liveness import Lease
from engine.journal.write import Writer
from tests.support.dashboards.dashboard_journal import CAMPAIGN, make, own
from tests.support.dashboards.dashboard_terminal import Terminal, dashboard
from tests.support.paths import ROOT


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    make(tmp_path, time.time())
    own(tmp_path, Lease(campaign=CAMPAIGN, host="box boot ns", pid=4121, started=1.0, epoch=1,
                        heartbeat=time.time() + 1e6))
    return tmp_path


@pytest.fixture
def tmux() -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    server = Tmux()
    yield server
    server("kill-server")


class Tmux:
    """A tmux server of its own."""

    def __init__(self) -> None:
        self.socket = f"kopt-{uuid.uuid4().hex[:8]}"

    def __call__(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-f", os.devnull, "-L", self.socket, *words],
                              capture_output=True, text=True, check=False, timeout=20)
        return done.stdout

    def until(self, wanted: str, limit: float = 30.0) -> str:
        deadline = time.monotonic() + limit
        while wanted not in (text := self("capture-pane", "-p")):
            assert time.monotonic() < deadline, f"{wanted!r} did not come:\n{text}"
            time.sleep(0.05)
        return text


def test_dashboard_works_in_tmux(workspace: Path, tmux: Tmux) -> None:
    command = " ".join(dashboard(workspace))
    tmux("new-session", "-d", "-s", "kopt", "-x", "80", "-y", "24", "-c", str(ROOT),
         f"{command}; echo left with $?; sleep 60")
    tmux.until("rmsnorm c")
    tmux("send-keys", "Enter")
    tmux.until("waits for you")
    tmux("send-keys", "Tab", "Enter")
    tmux.until("patch +11 -3")
    tmux("send-keys", "a")
    tmux.until("Let it wait")
    tmux("send-keys", "Enter")
    tmux.until("patch +11 -3")
    tmux("send-keys", "Escape")
    tmux.until("best so far")
    tmux("resize-window", "-t", "kopt", "-x", "200", "-y", "50")
    tmux.until("not vectorised")
    tmux("send-keys", "q")
    tmux.until("left with 0")


@pytest.fixture
def terminal(workspace: Path) -> Iterator[Terminal]:
    opened = Terminal(dashboard(workspace, "--campaign", CAMPAIGN))
    opened.until(b"LANES in 4..32")
    opened.quiet(1.5)
    yield opened
    opened.close()


def test_progress_of_a_worker_costs_few_bytes(workspace: Path, terminal: Terminal) -> None:
    writer = Writer(workspace)
    writer.hold(CAMPAIGN, 1)
    written = len(terminal.screen)
    writer.tick_slot(CAMPAIGN, 3, "fixed", progress=0.71, detail="trial 17 of 24, best 1.19x")
    writer.close()
    terminal.until(b" 71%")
    terminal.quiet(1.0)
    assert len(terminal.screen) - written <= 120, terminal.screen[written:]


def test_idle_dashboard_writes_nothing_also_after_heartbeats(
        workspace: Path, terminal: Terminal) -> None:
    writer = Writer(workspace)
    for _ in range(3):
        writer.put_lease(Lease(campaign=CAMPAIGN, host="box boot ns", pid=4121, started=1.0,
                               epoch=1, heartbeat=time.time() + 1e6))
    writer.close()
    assert terminal.read(2.5) == 0  # longer than the interval at which Feed checks the engines


def test_process_ends_with_its_terminal(terminal: Terminal) -> None:
    pid = terminal.pid
    os.close(terminal.fd)
    deadline = time.monotonic() + 30
    while liveness.process_start(pid) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    terminal.fd = os.open(os.devnull, os.O_RDONLY)


def test_refusal_without_a_terminal_names_the_alternative(workspace: Path) -> None:
    done = subprocess.run(dashboard(workspace), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False, cwd=ROOT, timeout=30)
    assert done.returncode in (2, 3) and done.stdout == ""
    assert "terminal" in done.stderr and len(done.stderr.splitlines()) == 1


def test_launcher_imports_neither_textual_nor_the_journal() -> None:
    code = "import sys, kopt_tui.dashboard.launch; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code],
                          capture_output=True, text=True, check=True, cwd=ROOT, timeout=30)
    assert not {"textual", "rich", "sqlite3", "torch", "numpy"} & set(done.stdout.split())


def test_bytes_that_are_not_text_are_ignored_and_a_key_after_escape_counts(workspace: Path) -> None:
    terminal = Terminal(dashboard(workspace))
    terminal.until(b"rmsnorm c")
    high = random.Random(1)
    for garbage in (b"\xff", b"\xc3\x28\xf0\x9f", b"\x1b[\xff\xfe", b"\x1b[<9;\xb2;9M", b"\x1b[:R",
                    b"\x1b[99999999999999999999999u", bytes(high.choices(range(128, 256), k=3000)),
                    b"\x1b[200~\xff q \x1b[201~"):
        terminal.press(garbage)
        terminal.read(0.1)
    terminal.press(b"?")
    terminal.until(b"type to search")
    terminal.press(b"\x1b2")  # as tmux sends escape followed by a key
    terminal.until(b"waits for you")
    terminal.press(b"??\x03\x03\x03")
    assert terminal.exit_code() == 0
    terminal.close()


def test_crash_is_one_line_with_a_log_file_and_restores_the_terminal(workspace: Path) -> None:
    code = ("import sys; from kopt_tui import main; from kopt_tui.dashboard import dashboard\n"
            "def fall(self): raise ValueError('a fault\\nof two lines')\n"
            "dashboard.Dashboard.action_help = fall; sys.exit(main.main(sys.argv[1:]))")
    terminal = Terminal([sys.executable, "-c", code, "--workspace", str(workspace)])
    before = termios.tcgetattr(terminal.fd)
    terminal.until(b"rmsnorm c")
    assert termios.tcgetattr(terminal.fd) != before
    terminal.press(b"?")
    assert terminal.exit_code() == 1
    assert termios.tcgetattr(terminal.fd) == before
    last = terminal.screen.rpartition(b"\x1b[?1049l")[2]
    assert last.count(b"kopt: ") == 1 and b"ValueError: a fault" in last
    first, *others = last.strip().splitlines()
    assert b"kopt: " in first and all(line.startswith(b"  ") for line in others), last
    assert "of two lines" in (workspace / "dashboard-crash.log").read_text()
    terminal.close()


def test_crash_after_kopt_was_changed_says_to_start_it_again(workspace: Path) -> None:
    """A dashboard that was open while kopt was upgraded loaded new modules beside old ones."""
    code = ("import sys; from kopt_tui import main; from kopt_tui.dashboard import launch\n"
            "from kopt_tui.snapshot.snapshot_builder import Builder; launch.BEGAN = 0.0\n"
            "Builder.snapshot = lambda *_: 1 / 0; sys.exit(main.main(sys.argv[1:]))")
    terminal = Terminal([sys.executable, "-c", code, "--workspace", str(workspace)])
    assert terminal.exit_code() == 1
    last = b" ".join(terminal.screen.rpartition(b"\x1b[?1049l")[2].split())
    assert b"kopt was changed while the dashboard was open (campaigns keep running; start it " \
        b"again; the error is in" in last
    assert "ZeroDivisionError" in (workspace / "dashboard-crash.log").read_text()
    terminal.close()


def test_error_in_the_reading_thread_is_reported_too(workspace: Path) -> None:
    code = ("import sys; from kopt_tui import main\n"
            "from kopt_tui.snapshot.snapshot_builder import Builder\n"
            "Builder.snapshot = lambda *_: 1 / 0; sys.exit(main.main(sys.argv[1:]))")
    terminal = Terminal([sys.executable, "-c", code, "--workspace", str(workspace)])
    assert terminal.exit_code() == 1
    assert b"ZeroDivisionError" in terminal.screen.rpartition(b"\x1b[?1049l")[2]
    terminal.close()
