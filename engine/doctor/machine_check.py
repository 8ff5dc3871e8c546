"""The result of one check of this machine, and how checks run programs."""

from __future__ import annotations

import subprocess
from typing import Literal

import msgspec

Status = Literal["ok", "note", "warn", "missing"]
TOOL_S = 5.0


class MachineCheck(msgspec.Struct, frozen=True):
    """A check's result; `missing` means that kopt cannot work, `fix` is what to do about it."""

    name: str
    status: Status
    found: str
    fix: str = ""


def output(*argv: str, timeout_s: float = TOOL_S) -> str | None:
    """Return what a program prints, None if it is missing, fails or takes too long."""
    try:
        done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, text=True,
                              errors="replace", timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
