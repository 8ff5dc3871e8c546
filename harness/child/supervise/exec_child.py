"""Runs a child program after fork, without exec, or gets ready to exec another one.

Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import runpy
import signal
import sys
import tempfile
import traceback
from importlib import import_module

PACKAGE = __name__.partition(".")[0]


def exec_child(program: str, descriptors: list[int], env: dict[str, str],
               words: list[str]) -> None:
    """Run a program in the current process image, then exit: a module of this package, or a file.

    Its arguments are `words`, or else its descriptors.
    """
    low = 3
    for descriptor in sorted(descriptors):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, 4096)
    os.environ.clear()
    os.environ.update(env)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # it may be killed
    sys.argv = [program, *(words or map(str, descriptors))]
    tempfile.tempdir = None  # the zygote's folder is a different one
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # Python's default at start
    scatter()
    status = 1
    try:
        if os.path.isabs(program):
            runpy.run_path(program, run_name="__main__")
        else:
            import_module(f"{PACKAGE}.{program}").main(descriptors[0])
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def renumbered(report: int, passed: list[int], numbers: list[int]) -> tuple[int, list[int]]:
    """Copy the descriptors `passed` to `numbers`, by which the program's arguments name them.

    Return the new number of `report`, which is moved above these, and `numbers`.
    """
    above = max(2, *numbers) + 1
    report, *copies = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in (report, *passed))
    for copy, number in zip(copies, numbers, strict=True):
        os.dup2(copy, number)
    return report, numbers


def scatter() -> None:
    """Allocate memory of random sizes and keep it, to vary the memory layout between forks.

    Forks inherit the zygote's layout. A layout biases times, and process pairs can average that
    out only if layouts differ.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    for size in (16, 256, 4096, 65536):
        for _ in range(1 + os.urandom(1)[0] % 16):
            libc.malloc(ctypes.c_size_t(size + int.from_bytes(os.urandom(2), "little") % size))
    libc.malloc(ctypes.c_size_t((1 + os.urandom(1)[0]) * 4096 * 61))  # above 128 KiB: mapped
    for _ in range(os.urandom(1)[0]):  # single pages fill the gaps where libraries would be loaded
        libc.mmap(None, ctypes.c_size_t(mmap.PAGESIZE), 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
                  -1, ctypes.c_long(0))
