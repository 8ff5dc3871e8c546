"""Contexts on the cards of a host: its driver makes them one after another, for all who ask.

What nobody waits for yet is made when nobody else waits, and a few at a time over all that this
host's kopts measure: else the verdict on one card is held up by what the next one needs later.
These are manners and no lock: who was patient for long goes on, and who is waited for at once.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness import lock

AT_ONCE = 3
"""More at a time come hardly sooner, and whoever is waited for queues behind them."""
PATIENCE_S = 5.0
ONE_QUEUE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
"""With it a context is made in two thirds of the time. Work on several streams waits for each other
then, so that it is for who has one stream alone."""
_URGENT = "contexts.urgent"


@contextmanager
def urgent() -> Iterator[None]:
    """Have the patient wait, while contexts are made that a verdict waits for."""
    fd, _ = lock.open_file(_URGENT)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)  # those who look for it hold it for an instant
        yield
    finally:
        os.close(fd)


@contextmanager
def patient(wanted: threading.Event, *, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Wait for a turn to make a context, until it is `wanted` at once; the turn is kept meanwhile.
    """
    end = time.monotonic() + patience_s
    turn = None
    try:
        while time.monotonic() < end and not wanted.is_set():
            turn = _turn() if turn is None else turn
            if turn is not None and not _is_urgent():
                break
            wanted.wait(lock.POLL_S)
        yield
    finally:
        if turn is not None:
            os.close(turn)


def _turn() -> int | None:
    """Take a turn that is free; None while all are taken."""
    for number in range(AT_ONCE):
        fd, _ = lock.open_file(f"contexts.{number}")
        if _flock(fd):
            return fd
        os.close(fd)
    return None


def _is_urgent() -> bool:
    fd, _ = lock.open_file(_URGENT)
    try:
        return not _flock(fd)
    finally:
        os.close(fd)


def _flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
