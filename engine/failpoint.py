"""Dying at a named step, so that tests can prove what a killed engine leaves behind."""

from __future__ import annotations

import os
import signal

VARIABLE = "KOPT_FAILPOINT"


def failpoint(name: str) -> None:
    """Kill this process, as `kill -9` would, if KOPT_FAILPOINT names this step."""
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
