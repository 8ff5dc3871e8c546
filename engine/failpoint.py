"""Kills the process at a named step, so that tests can check recovery after a kill."""

from __future__ import annotations

import os
import signal

VARIABLE = "KOPT_FAILPOINT"


def failpoint(name: str) -> None:
    """Kill this process with SIGKILL if KOPT_FAILPOINT names this step."""
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
