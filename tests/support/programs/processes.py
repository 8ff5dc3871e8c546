"""Finds real processes by a mark and waits for their state with a deadline."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tests.support.paths import ROOT


def mark() -> str:
    """Return a word that no other process has on its command line."""
    return f"kopt-test-{uuid.uuid4().hex}"


def marked(word: str) -> dict[int, str]:
    """Return pid -> state letter of the living processes with `word` on their command line."""
    found = {}
    for entry in os.listdir("/proc"):
        try:
            if word.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                state = Path(f"/proc/{entry}/stat").read_bytes().rsplit(b") ", 1)[1].split()[0]
                found[int(entry)] = state.decode()
        except (OSError, ValueError, IndexError):
            continue
    return {pid: state for pid, state in found.items() if state not in "ZX"}


def alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b") ", 1)[1].split()[0]
    except (OSError, IndexError):
        return False
    return state not in b"ZX"


def resident(pid: int) -> int:
    """Return the resident bytes of a process, 0 when it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGESIZE")


def until(true: Callable[[], object], seconds: float = 60.0) -> bool:
    """Poll until `true()` holds; return False if it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.005)
    return bool(true())


def python(code: str, *arguments: str) -> list[str]:
    """Return the command line that runs `code` in a bare interpreter."""
    return [sys.executable, "-I", "-S", "-c", code, *arguments]


def owner(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a Python process that can import the harness and own guarded processes."""
    return subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=ROOT,
                            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
