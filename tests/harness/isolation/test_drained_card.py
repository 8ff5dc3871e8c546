"""A measurement waits until the card has finished the kernels of stopped processes."""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.errors import Cancelled
from harness.isolation import device_lock


@pytest.fixture(autouse=True)
def _locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setattr(device_lock, "SETTLING_S", 0.0)


@contextmanager
def yielding(device: str) -> Iterator[None]:
    """Work on a device until a measurement asks for it."""
    turn, active = (os.open(path, os.O_RDONLY) for path in device_lock.turnstile(device).paths)
    fcntl.flock(active, fcntl.LOCK_SH)

    def stop_for_a_measurement() -> None:
        while True:
            try:
                fcntl.flock(turn, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                break
            fcntl.flock(turn, fcntl.LOCK_UN)
            os.sched_yield()
        time.sleep(5 * device_lock.POLL_S)  # like a supervisor, which checks every 20 ms
        fcntl.flock(active, fcntl.LOCK_UN)

    thread = threading.Thread(target=stop_for_a_measurement)
    thread.start()
    yield
    thread.join()
    os.close(turn)
    os.close(active)


def test_lock_is_acquired_when_the_card_has_become_idle() -> None:
    answers = iter([False, False, True])
    with yielding("card"), device_lock.acquire("card", is_idle=lambda: next(answers)):
        assert list(answers) == []


def test_wait_ends_if_the_card_cannot_tell_or_stays_busy(
        monkeypatch: pytest.MonkeyPatch) -> None:
    for answer, limit_s, most in ((None, 60.0, 1), (False, 0.05, 50)):
        monkeypatch.setattr(device_lock, "DRAIN_S", limit_s)
        asked = itertools.count()
        with yielding("card"), device_lock.acquire(
                "card", is_idle=lambda: (next(asked), answer)[1]):  # noqa: B023
            assert 1 <= next(asked) <= most


def test_card_is_not_queried_for_the_cpu_or_if_no_process_was_stopped() -> None:
    asked: list[bool] = []
    with device_lock.acquire("card", is_idle=lambda: asked.append(True)):
        pass
    with yielding("cpu"), device_lock.acquire("cpu", is_idle=lambda: asked.append(True)):
        assert asked == []


def test_waiting_for_a_card_can_be_cancelled_and_frees_the_lock() -> None:
    cancel = threading.Event()

    def is_idle() -> bool:
        cancel.set()
        return False

    with yielding("card"), pytest.raises(Cancelled, match="a card's kernels"):
        device_lock.acquire("card", cancel=cancel, is_idle=is_idle)
    device_lock.acquire("card", timeout_s=1.0).release()
