"""Guards the dashboard in real terminals: in tmux, and the bytes that it writes to a pty."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.journal import liveness
from engine.journal.records import Lease
from engine.journal.write import Writer
from tests.support.dashboard_journal import CAMPAIGN, make, own
from tests.support.dashboard_terminal import Terminal, dashboard
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


def test_idle_dashboard_writes_nothing(terminal: Terminal) -> None:
    assert terminal.read(4.0) == 0


def test_progress_of_a_worker_costs_few_bytes(workspace: Path, terminal: Terminal) -> None:
    writer = Writer(workspace)
    writer.hold(CAMPAIGN, 1)
    written = len(terminal.screen)
    writer.tick_slot(CAMPAIGN, 3, "fixed", progress=0.71, detail="trial 17 of 24, best 1.19x")
    writer.close()
    terminal.until(b" 71%")
    terminal.quiet(1.0)
    assert len(terminal.screen) - written <= 120, terminal.screen[written:]


def test_heartbeat_writes_nothing(workspace: Path, terminal: Terminal) -> None:
    writer = Writer(workspace)
    for _ in range(3):
        writer.put_lease(Lease(campaign=CAMPAIGN, host="box boot ns", pid=4121, started=1.0,
                               epoch=1, heartbeat=time.time() + 1e6))
    writer.close()
    assert terminal.read(2.0) == 0


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


def test_entry_loads_neither_textual_nor_the_journal() -> None:
    code = "import sys, kopt_tui.dashboard.launch; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code],
                          capture_output=True, text=True, check=True, cwd=ROOT, timeout=30)
    assert not {"textual", "rich", "sqlite3", "torch", "numpy"} & set(done.stdout.split())
