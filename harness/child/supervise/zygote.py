"""Imports torch (and triton), or other modules, once, and forks a guarded program on each request.

Requests arrive on a packet socket that several processes may share. The first packet says what to
import. Each later packet carries the descriptors of a guard: its control socket, two outputs, a
pipe that reports the pid and closes when the guard ends, then the descriptors of its program and of
device locks. Each fork becomes a `supervisor`. The zygote contains nothing of any candidate and
never touches a GPU, because a CUDA context cannot be forked. It imports the standard library,
torch, triton or numpy, and what a request names.
"""

from __future__ import annotations

import contextlib
import ctypes
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
from .yield_gate import YieldGate

PACKAGE = __name__.partition(".")[0]

MOST_BYTES, MOST_DESCRIPTORS = 1 << 16, 32
TICK_S = 0.02
IMPORT_S = 120
MADV_COLLAPSE, HUGE_BYTES = 25, 2 << 20
LANGUAGE = {
    "c": ("numpy",),
    "python": ("torch",),
    "triton": ("torch", "triton", "triton.language", "triton.compiler", "triton.backends",
               "triton.backends.nvidia.compiler", "triton.backends.nvidia.driver"),
}
COMPILING = ("triton.compiler.code_generator", "triton.runtime.cache",
             "triton.experimental.gluon.nvidia.hopper")
OURS = ("supervise.exec_child", "supervise.confine", "run.runner", "oracle.oracle")
OF_C = ("run.c_kernel", "oracle.arrays_numpy")
OF_TORCH = ("compile.aot", "run.load_python", "run.load_device_code", "run.time_python",
            "oracle.arrays_torch", "watch.launches")


def main(descriptor: int) -> None:
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    job = json.loads(channel.recv(MOST_BYTES))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the zygote does not wait for its forks
    with _active(job["yields"]):
        signal.alarm(IMPORT_S)  # a hanging import must not block every measurement
        sys.path[:0] = filter(None, [job["path"]])
        _import(job["language"], job["modules"])
        signal.alarm(0)
    gc.collect()
    gc.freeze()  # later collections skip these objects, so shared pages stay shared
    collapse_memory()
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, MOST_BYTES, MOST_DESCRIPTORS)
        if not data:
            return
        if os.fork() == 0:
            channel.close()
            _guard(json.loads(data), descriptors)
        for received in descriptors:
            os.close(received)


@contextmanager
def _active(yields: list[str] | None) -> Iterator[None]:
    """Enter the `with` block when no other process measures on the CPU; none begins within it."""
    gate = YieldGate(yields)
    while not gate.enter():
        time.sleep(TICK_S)
    try:
        yield
    finally:
        for file in gate.files:
            os.close(file)


def _import(language: str, modules: list[str]) -> None:
    """Import what is installed; a program that lacks a module reports that itself."""
    for name in modules or LANGUAGE.get(language, LANGUAGE["python"]):
        with contextlib.suppress(Exception):
            import_module(name)
    for name in OURS[:1] if modules else OURS + (OF_C if language == "c" else OF_TORCH):
        with contextlib.suppress(Exception):
            import_module(f"{PACKAGE}.{name}")
    if language == "triton" and os.environ.get("TRITON_INTERPRET") != "1":
        with contextlib.suppress(Exception):
            _warm_up_compiler()


def _warm_up_compiler() -> None:
    """Do once what every first launch does: import the compiler, compute Triton's cache key.

    For that key Triton reads half a gigabyte of its own files.
    """
    for name in COMPILING:
        import_module(name)
    sys.modules["triton.runtime.cache"].triton_key()
    sys.modules["triton.backends.nvidia.compiler"].get_ptxas_version(90)


def collapse_memory() -> None:
    """Move this process's memory to huge pages; does nothing before Linux 6.1.

    A fork then copies a small page table: with torch it takes 2 ms instead of 8, and a confined
    program needs three forks.
    """
    madvise = ctypes.CDLL(None).madvise
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for mapping in maps:
            span, access, _, _, inode, *_ = mapping.split()
            first, last = (int(end, 16) for end in span.split("-"))
            first, last = -(-first // HUGE_BYTES) * HUGE_BYTES, last // HUGE_BYTES * HUGE_BYTES
            if access == "rw-p" and inode == "0" and first < last:
                madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_COLLAPSE)


def _guard(job: dict[str, Any], descriptors: list[int]) -> None:
    """Run the supervisor of one program in this fork, then exit."""
    control, out, err, life, *passed = descriptors
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.write(life, b"%d\n" % os.getpid())
    supervisor.main(control, passed[:job["passed"]], passed[job["passed"]:])
    os._exit(0)
