"""Starts supervisors: forks of a program's zygote, or else of a bare one of this process.

A fork takes 10 ms of CPU time, a new interpreter 60.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence

from harness.isolation import shared_zygotes
from harness.isolation.shared_zygotes import SUPERVISORS
from harness.isolation.zygote_client import PROGRAM, ForkedSupervisor, Zygote

Started = subprocess.Popen[bytes] | ForkedSupervisor


def start(control: socket.socket, passed: Sequence[int], held: Sequence[int],
          zygote: Zygote | None, path: str) -> tuple[Started, bool]:
    """Start a supervisor that serves `control`; return it, and whether `zygote` forked it.

    `passed` are the program's descriptors, `held` those of device locks, `path` is for a new
    interpreter, where nothing can be forked.
    """
    if zygote is not None and (forked := zygote.fork(control, passed, held)):
        return forked, True
    bare = shared_zygotes.zygote(SUPERVISORS)
    if bare is not None and (forked := bare.fork(control, passed, held)) and forked.pid:
        return forked, False
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(PROGRAM), "supervise.supervisor", str(control.fileno())],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        pass_fds=[control.fileno(), *passed, *held], env={"PATH": path},
        start_new_session=True), False
