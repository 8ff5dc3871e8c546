"""Urgent contexts are created first; patient waiters of all kopt processes take turns."""

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


class PatientThread:
    """A thread that waits patiently and holds its turn until `leave` is set."""

    def __init__(self, patience_s: float = LONG_S) -> None:
        self.needed, self.started, self.leave = (threading.Event() for _ in range(3))
        self.thread = threading.Thread(target=self._run, args=(patience_s,), daemon=True)
        self.thread.start()

    def _run(self, patience_s: float) -> None:
        with context_queue.patient(self.needed, patience_s=patience_s):
            self.started.set()
            self.leave.wait(LONG_S)

    def end(self) -> None:
        self.leave.set()
        self.thread.join(LONG_S)
        assert not self.thread.is_alive()


def test_only_a_few_patient_waiters_proceed_at_once() -> None:
    first = [PatientThread() for _ in range(context_queue.AT_ONCE)]
    assert all(waiter.started.wait(LONG_S) for waiter in first)
    late = PatientThread()
    assert not late.started.wait(0.1)
    first[0].end()
    assert late.started.wait(LONG_S)
    for waiter in (*first[1:], late):
        waiter.end()


def test_patient_waiter_waits_for_urgent_work() -> None:
    with ExitStack() as urgent:
        urgent.enter_context(context_queue.urgent())
        urgent.enter_context(context_queue.urgent())  # urgent work waits for no other
        patient = PatientThread()
        assert not patient.started.wait(0.1)
        urgent.close()
        assert patient.started.wait(LONG_S)
    patient.end()


@pytest.mark.parametrize("how", ["needed", "patience"])
def test_patient_waiter_proceeds_during_urgent_work_if_needed_or_overdue(how: str) -> None:
    with context_queue.urgent():
        patient = PatientThread(0.05 if how == "patience" else LONG_S)
        if how == "needed":
            assert not patient.started.wait(0.1)
            patient.needed.set()
        assert patient.started.wait(LONG_S)
    patient.end()


def test_patient_waiter_proceeds_once_the_urgent_process_is_killed(locks: Path) -> None:
    code = ("import sys\nfrom harness.runners import context_queue as contexts\n"
            "with contexts.urgent():\n    print('held', flush=True); sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE, cwd=ROOT) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        patient = PatientThread()
        assert not patient.started.wait(0.1)
        holder.kill()
    assert patient.started.wait(LONG_S)
    patient.end()


def test_lock_file_that_is_held_or_cannot_be_opened_stops_no_urgent_work(locks: Path) -> None:
    """If the lock file cannot be opened, patient work proceeds as well."""
    path = device_lock.lock_directory() / "contexts.urgent"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with context_queue.urgent():
            pass
    path.unlink()
    path.mkdir()
    with context_queue.urgent(), context_queue.patient(threading.Event()):
        pass
