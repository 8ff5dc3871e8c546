"""The order in which the kopt processes of a host create GPU contexts.

The driver creates one context after another for the whole host. Contexts that are not
needed yet are created while none is needed urgently, and only a few at a time over all kopt
processes. Otherwise a verdict on one card would wait for contexts that another card needs later.
The order is advisory: patient waiters proceed after a timeout, urgent ones at once.
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
"""Patient contexts created at a time; more are hardly faster and would delay urgent ones."""
PATIENCE_S = 5.0
POLL_S = 0.02
TRIES, TRY_S = 20, 0.001
ONE_QUEUE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
"""Shortens the creation of a context to two thirds, but serialises work on several streams; set
only for kernels that use one stream."""
_URGENT, _TURNS = "contexts.urgent", [f"contexts.{number}" for number in range(AT_ONCE)]


@contextmanager
def urgent() -> Iterator[None]:
    """Hold back patient waiters while contexts that a verdict needs are created."""
    fd = _open(_URGENT)
    try:
        if fd is not None:
            _share(fd)
        yield
    finally:
        _close(fd)


@contextmanager
def patient(needed: threading.Event, *, patience_s: float | None = None) -> Iterator[None]:
    """Wait for a turn to create a context, at most `patience_s` and not once it is `needed`.

    A turn is held within the `with` block.
    """
    deadline = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    turn = _wait_for_turn(needed, deadline)
    try:
        yield
    finally:
        _close(turn)


def _wait_for_turn(needed: threading.Event, deadline: float) -> int | None:
    """Wait for a free turn and, at most until `deadline`, for the end of urgent work.

    None if no turn was free in time.
    """
    files = [_open(name) for name in (_URGENT, *_TURNS)]
    gate, *turns = files
    held = None
    try:
        while None not in files and time.monotonic() < deadline and not needed.is_set():
            held = next((turn for turn in turns if _lock(turn)), None) if held is None else held
            if held is not None and _lock(gate):
                break
            needed.wait(POLL_S)
    finally:
        for fd in files:
            if fd != held:
                _close(fd)
    return held


def _open(name: str) -> int | None:
    """Open a file of the lock directory; None if that fails; then no process waits."""
    try:
        return device_lock.open_file(name)[0]
    except KoptError:
        return None


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _share(fd: int) -> None:
    """Take the shared lock of urgent work; patient waiters hold the file only for an instant."""
    for _ in range(TRIES):
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        time.sleep(TRY_S)


def _lock(fd: int | None) -> bool:
    """Try to lock a file exclusively; return whether that succeeded."""
    if fd is None:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
