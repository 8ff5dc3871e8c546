"""Answers each question in its own fork, so that one question cannot affect the next.

Slow imports happen once, before the first fork. A fork that has answered, crashed or exceeded its
time is killed with all its descendants. It cannot reach its parent's memory or descriptors.
Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from .descendants import signal_all

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
MOST_BYTES = 16 << 20
END_S = 3.0
Work = Callable[[dict[str, Any]], dict[str, Any]]


def serve(descriptor: int, work: Work, limit_s: float) -> None:
    """Answer JSON lines until the owner closes the socket.

    If a fork sends no valid answer in time, the answer is {"died": reason}.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    gc.collect()
    gc.freeze()
    channel = socket.socket(fileno=descriptor)
    with channel, channel.makefile("rb") as lines:
        for line in lines:
            channel.sendall(_answer(json.loads(line), work, limit_s))


def _answer(job: dict[str, Any], work: Work, limit_s: float) -> bytes:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work(job, work, write)
    os.close(write)
    data, late = _collect(read, time.monotonic() + limit_s)
    os.close(read)
    code = _end(pid)
    if data.endswith(b"\n") and data.count(b"\n") == 1:
        return data
    if late:
        died = f"ran past its limit of {limit_s:g} s"
    elif code < 0 and not data:
        died = f"crashed ({signal.Signals(-code).name})"
    else:
        died = "sent an invalid answer" if data else f"exited with {code}"
    return json.dumps({"died": died}).encode() + b"\n"


def _work(job: dict[str, Any], work: Work, write: int) -> None:
    with contextlib.suppress(BaseException):
        os.closerange(3, write)
        os.closerange(write + 1, 4096)
        with open(write, "wb") as pipe:
            pipe.write(json.dumps(work(job)).encode() + b"\n")
    os._exit(1)


def _collect(read: int, deadline: float) -> tuple[bytes, bool]:
    """Return what a fork wrote until it closed the pipe, and whether that took too long."""
    data = bytearray()
    while len(data) <= MOST_BYTES:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([read], [], [], left)[0]:
            return bytes(data), True
        if not (more := os.read(read, 1 << 16)):
            break
        data += more
    return bytes(data), False


def _end(pid: int) -> int:
    """Kill a fork and its descendants; return its exit code, negative for a signal."""
    os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    deadline = time.monotonic() + END_S
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) is not None:
            signal_all(signal.SIGKILL)
            if time.monotonic() > deadline:
                sys.exit("a process cannot be killed")  # the guard outside can
            time.sleep(0.001)
    return code
