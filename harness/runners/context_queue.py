"""Contexts on the cards of a host: its driver makes them one after another, for all who ask.

What nobody waits for yet is made when nobody else waits, and a few at a time over all that this
host's kopts measure: else the verdict on one card is held up by what the next one needs later.
These are manners and no lock: who was patient for long goes on, and who is waited for at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness.errors import KoptError
from harness.isolation import device_lock

AT_ONCE = 3
"""More at a time come hardly sooner, and whoever is waited for queues behind them."""
PATIENCE_S = 5.0
POLL_S = 0.02
TRIES, TRY_S = 20, 0.001
ONE_QUEUE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
"""With it a context is made in two thirds of the time. Work on several streams waits for each other
then, so that it is for who has one stream alone."""
_URGENT, _TURNS = "contexts.urgent", [f"contexts.{number}" for number in range(AT_ONCE)]


@contextmanager
def urgent() -> Iterator[None]:
    """Have the patient wait, while contexts are made that a verdict waits for."""
    fd = _open(_URGENT)
    try:
        if fd is not None:
            _shared(fd)
        yield
    finally:
        _close(fd)


@contextmanager
def patient(wanted: threading.Event, *, patience_s: float | None = None) -> Iterator[None]:
    """Wait for a turn to make a context, unless it is `wanted` at once; the turn is kept meanwhile.
    """
    end = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    turn = _turn(wanted, end)
    try:
        yield
    finally:
        _close(turn)


def _turn(wanted: threading.Event, end: float) -> int | None:
    """Wait until `end` for a turn and for nobody to be waited for; None where no turn was free."""
    files = [_open(name) for name in (_URGENT, *_TURNS)]
    gate, *turns = files
    mine = None
    try:
        while None not in files and time.monotonic() < end and not wanted.is_set():
            mine = next((one for one in turns if _alone(one)), None) if mine is None else mine
            if mine is not None and _alone(gate):
                break
            wanted.wait(POLL_S)
    finally:
        for fd in files:
            if fd != mine:
                _close(fd)
    return mine


def _open(name: str) -> int | None:
    """Open a file of the lock directory; None where that cannot be, and then nobody waits."""
    try:
        return device_lock.open_file(name)[0]
    except KoptError:
        return None


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _shared(fd: int) -> None:
    """Be one of those who are waited for; who looks for them holds the file for an instant only."""
    for _ in range(TRIES):
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        time.sleep(TRY_S)


def _alone(fd: int | None) -> bool:
    """Lock a file, and tell whether nobody else has it."""
    if fd is None:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
