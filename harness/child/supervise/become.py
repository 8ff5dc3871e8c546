"""What a forked supervisor's child goes on as, where no exec gives it an image of its own.

Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import tempfile
import traceback
from importlib import import_module

PACKAGE = __name__.partition(".")[0]


def become(program: str, descriptor: int, env: dict[str, str]) -> None:
    """Go on as one of the programs beside this, in the image that a zygote has made; no return."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, 4096)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [program]
    tempfile.tempdir = None  # what the zygote has found was another folder
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python has it at its start
    scatter()
    status = 1
    try:
        import_module(f"{PACKAGE}.{program}").main(descriptor)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def scatter() -> None:
    """Take some memory of random sizes, for good: what is forked has the layout of its zygote.

    A layout is a bias of its own on times, which pairs of processes are to average out.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    for size in (16, 256, 4096, 65536):
        for _ in range(1 + os.urandom(1)[0] % 16):
            libc.malloc(ctypes.c_size_t(size + int.from_bytes(os.urandom(2), "little") % size))
    libc.malloc(ctypes.c_size_t((1 + os.urandom(1)[0]) * 4096 * 61))  # above 128 KiB: mapped
