"""Runs a user's own program as a shell does: in the foreground, in its own process group.

Ctrl-C and Ctrl-Z at the terminal go to the program. The program is trusted: it is neither confined
nor limited.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from harness.errors import InputError

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STDIN = 0
LEAVE_S = 5.0
"""How long the remaining processes of an interrupted program may take to end."""


def run(command: Sequence[str], env: Mapping[str, str], *, stdout: int | None = None) -> int:
    """Run a program to its end; return its exit code, negative for a signal.

    The first signal that asks this process to end is forwarded to the program's process group, a
    second one kills that group. Raises InputError if there is no such program.
    """
    received: list[int] = []
    group: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        received.append(number)
        for leader in group:
            _signal(leader, number if len(received) == 1 else signal.SIGKILL)

    with _handled(forward):
        has_terminal = _has_terminal()
        try:
            program = subprocess.Popen(command, env=dict(env), stdout=stdout, process_group=0)
        except OSError as error:
            raise InputError(f"cannot be run: {error.strerror}", where=command[0],
                             fix="write the program after --, as in a shell") from None
        group.append(program.pid)
        if received:
            _signal(program.pid, received[0])
        try:
            if has_terminal:
                _give_terminal(program.pid)
                _signal(program.pid, signal.SIGCONT)
            program.returncode = _wait_for(program.pid, has_terminal)
        finally:
            if has_terminal:
                _give_terminal(os.getpgrp())
        if received or -program.returncode in FORWARDED:
            _end_rest(program.pid)
    return program.returncode


@contextmanager
def _handled(forward: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the forwarded signals, except those that were ignored at the start."""
    before = {number: signal.signal(number, forward) for number in FORWARDED
              if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_for(leader: int, has_terminal: bool) -> int:
    """Wait for a program; when Ctrl-Z stops it, stop too, and continue it afterwards."""
    while True:
        _, status = os.waitpid(leader, os.WUNTRACED if has_terminal else 0)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        _give_terminal(os.getpgrp())
        os.kill(os.getpid(), signal.SIGSTOP)
        if _has_terminal():
            _give_terminal(leader)
        _signal(leader, signal.SIGCONT)


def _end_rest(group: int) -> None:
    """Wait until an interrupted program's process group is empty; kill what remains."""
    deadline = time.monotonic() + LEAVE_S
    while _signal(group, 0) and time.monotonic() < deadline:
        time.sleep(0.02)
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _has_terminal() -> bool:
    try:
        return os.tcgetpgrp(STDIN) == os.getpgrp()
    except OSError:
        return False


def _give_terminal(group: int) -> None:
    """Give a process group the terminal, without being stopped for it in the background."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        os.tcsetpgrp(STDIN, group)
    except OSError:
        return
    finally:
        signal.signal(signal.SIGTTOU, before)
