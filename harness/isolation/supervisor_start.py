"""Starts supervisors, or takes over one whose program an earlier process kept.

A supervisor is forked from its program's zygote, or else from a bare zygote of this process: a fork
takes 10 ms of CPU time, a new interpreter 60 ms.
"""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.formats.json_codec import to_json
from harness.isolation import shared_zygotes
from harness.isolation.shared_zygotes import SUPERVISORS
from harness.isolation.zygote_client import PROGRAM, ForkedSupervisor, Zygote

Started = subprocess.Popen[bytes] | ForkedSupervisor


@dataclass(frozen=True)
class KeptProcess:
    """A running program and its supervisor, as descriptors that one process leaves to the next.

    `requests` is the socket of the program, `control` that of its supervisor, `life` a pipe that is
    closed when the supervisor ends. When no process holds them, the supervisor ends the program.
    """

    pid: int
    requests: int
    control: int
    stdout: int
    stderr: int
    life: int

    @property
    def descriptors(self) -> list[int]:
        return [self.requests, self.control, self.stdout, self.stderr, self.life]

    @property
    def is_guarded(self) -> bool:
        """Whether the supervisor runs: it closes `life` when it ends, and writes nothing to it."""
        return not select.select([self.life], [], [], 0)[0]


def start(job: Mapping[str, object], passed: Sequence[int], held: Sequence[int],
          zygote: Zygote | None, program: str, path: str) -> tuple[socket.socket, Started]:
    """Start a supervisor with its job; return the control socket and the supervisor.

    `passed` are the program's descriptors, `held` those of device locks. A fork of `zygote` runs
    `program`; where nothing can be forked, a new interpreter is started with `path` as its PATH.
    """
    control, theirs = socket.socketpair()
    with theirs:
        process, in_fork = _start(theirs, passed, held, zygote, path)
    line = to_json({**job, "pass_fds": list(passed), "program": program if in_fork else ""})
    with contextlib.suppress(OSError):  # the supervisor has ended: `wait` reports how
        control.sendall(line + b"\n")
    return control, process


def take_over(kept: KeptProcess, held: Sequence[int],
              zygote: Zygote | None) -> tuple[socket.socket, Started]:
    """Take over a kept process, and pass it the descriptors that `start` would."""
    control = socket.socket(fileno=kept.control)
    with contextlib.suppress(OSError):  # as in `start`
        socket.send_fds(control, [b"use\n"], [*held, *(zygote.tenancy if zygote else ())])
    return control, ForkedSupervisor(kept.stdout, kept.stderr, kept.life, kept.pid)


def _start(control: socket.socket, passed: Sequence[int], held: Sequence[int],
           zygote: Zygote | None, path: str) -> tuple[Started, bool]:
    """Start a supervisor that serves `control`; return it, and whether `zygote` forked it."""
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
