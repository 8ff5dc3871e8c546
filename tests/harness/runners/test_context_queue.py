"""Who is waited for makes a context first; the others take turns, all kopts of a host together."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.isolation import device_lock
from harness.runners import context_queue
from tests.support.paths import ROOT

LONG_S = 60.0


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    yield tmp_path / "locks"


class Waits:
    """Somebody patient in a thread, who leaves when told to."""

    def __init__(self, patience_s: float = LONG_S) -> None:
        self.wanted, self.began, self.leave = (threading.Event() for _ in range(3))
        self.thread = threading.Thread(target=self._run, args=(patience_s,), daemon=True)
        self.thread.start()

    def _run(self, patience_s: float) -> None:
        with context_queue.patient(self.wanted, patience_s=patience_s):
            self.began.set()
            self.leave.wait(LONG_S)

    def end(self) -> None:
        self.leave.set()
        self.thread.join(LONG_S)
        assert not self.thread.is_alive()


def test_the_patient_go_so_many_at_a_time() -> None:
    first = [Waits() for _ in range(context_queue.AT_ONCE)]
    assert all(one.began.wait(LONG_S) for one in first)
    late = Waits()
    assert not late.began.wait(0.1)
    first[0].end()
    assert late.began.wait(LONG_S)
    for one in (*first[1:], late):
        one.end()


def test_nobody_patient_begins_while_another_is_waited_for() -> None:
    with ExitStack() as urgent:
        urgent.enter_context(context_queue.urgent())
        urgent.enter_context(context_queue.urgent())  # they do not wait for each other
        patient = Waits()
        assert not patient.began.wait(0.1)
        urgent.close()
        assert patient.began.wait(LONG_S)
    patient.end()


@pytest.mark.parametrize("how", ["wanted", "patience"])
def test_who_is_wanted_or_was_patient_for_long_goes_on(how: str) -> None:
    with context_queue.urgent():
        patient = Waits(0.05 if how == "patience" else LONG_S)
        if how == "wanted":
            assert not patient.began.wait(0.1)
            patient.wanted.set()
        assert patient.began.wait(LONG_S)
    patient.end()


def test_another_process_that_is_killed_leaves_its_turn(locks: Path) -> None:
    code = ("import sys\nfrom harness.runners import context_queue as contexts\n"
            "with contexts.urgent():\n    print('held', flush=True); sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE, cwd=ROOT) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        patient = Waits()
        assert not patient.began.wait(0.1)
        holder.kill()
    assert patient.began.wait(LONG_S)
    patient.end()


def test_manners_are_no_lock(locks: Path) -> None:
    """Somebody else may hold the file, or it cannot be opened: whoever is waited for goes on."""
    path = device_lock.lock_directory() / "contexts.urgent"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with context_queue.urgent():
            pass
    path.unlink()
    path.mkdir()
    with context_queue.urgent(), context_queue.patient(threading.Event()):
        pass
