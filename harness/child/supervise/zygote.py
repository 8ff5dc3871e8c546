"""Imports torch, and triton where it is wanted, once; forks a guarded program whenever asked.

Its socket is one of packets, which several processes may hold. The first packet says what to
import. Every other one comes with the descriptors of a guard: its control socket, two outputs, a
pipe that closes when it is gone and says its pid, then those of its program and of device locks.
What is forked is what `supervisor` would have been, started afresh. Nothing here belongs to a
candidate, and no GPU is touched: a context cannot be forked. Standard library only, but for that.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from . import supervisor
from .turnstile import YieldGate

PACKAGE = __name__.partition(".")[0]

MOST_BYTES, MOST_DESCRIPTORS = 1 << 16, 32
TICK_S = 0.02
IMPORT_S = 120
LANGUAGE = {
    "python": ("torch",),
    "triton": ("torch", "triton", "triton.language", "triton.compiler", "triton.backends",
               "triton.backends.nvidia.compiler", "triton.backends.nvidia.driver"),
}
COMPILING = ("triton.compiler.code_generator", "triton.runtime.cache",
             "triton.experimental.gluon.nvidia.hopper")
OURS = ("supervise.become", "compile.aot", "run.runner", "oracle.oracle", "run.load_python",
        "run.time_python", "oracle.arrays_torch", "watch.launches")


def main(descriptor: int) -> None:
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    job = json.loads(channel.recv(MOST_BYTES))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what is forked
    with _active(job["yields"]):
        signal.alarm(IMPORT_S)  # one that hangs must not keep everybody from measuring
        _import(job["language"])
        signal.alarm(0)
    gc.collect()
    gc.freeze()  # so that a collection touches no page that is shared, and takes no time
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, MOST_BYTES, MOST_DESCRIPTORS)
        if not data:
            return
        if os.fork() == 0:
            channel.close()
            _guard(json.loads(data), descriptors)
        for one in descriptors:
            os.close(one)


@contextmanager
def _active(yields: list[str] | None) -> Iterator[None]:
    """Keep out of the way of a measurement on a processor that is shared."""
    turnstile = YieldGate(yields)
    while not turnstile.enter():
        time.sleep(TICK_S)
    try:
        yield
    finally:
        for one in turnstile.files:
            os.close(one)


def _import(language: str) -> None:
    """Import what there is: what a program then lacks, it says itself."""
    for name in LANGUAGE[language]:
        with contextlib.suppress(Exception):
            import_module(name)
    for name in OURS:
        with contextlib.suppress(Exception):
            import_module(f"{PACKAGE}.{name}")
    if language == "triton" and os.environ.get("TRITON_INTERPRET") != "1":
        with contextlib.suppress(Exception):
            _ready_to_compile()


def _ready_to_compile() -> None:
    """Have what every first launch imports, and Triton's part of every key of its cache, for which
    it reads half a gigabyte of its own files.
    """
    for name in COMPILING:
        import_module(name)
    sys.modules["triton.runtime.cache"].triton_key()
    sys.modules["triton.backends.nvidia.compiler"].get_ptxas_version(90)


def _guard(job: dict[str, Any], descriptors: list[int]) -> None:
    """Be the supervisor of one program, to the end."""
    control, out, err, life, *passed = descriptors
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.write(life, b"%d\n" % os.getpid())
    supervisor.main(control, passed[:job["passed"]])
    os._exit(0)
