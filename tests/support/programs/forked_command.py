"""Runs kopt in forks of the test's process, which is faster than starting Python.

A fork has its own descriptors, folder, variables and exit, as a new process has. Modules of kopt
that one fork has imported are imported here before the next fork. While the test has other threads,
a fork starts Python anew: it would inherit a lock that one of them holds in SQLite.
"""

from __future__ import annotations

import fcntl
import importlib
import io
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn


def run(words: Sequence[str], *, data: bytes, cwd: Path | None, env: Mapping[str, str],
        limit_s: float) -> subprocess.CompletedProcess[bytes]:
    """Run one command line to its end. Raises TimeoutExpired as `subprocess.run` does."""
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, \
            tempfile.TemporaryFile() as err:
        given.write(data)
        given.seek(0)
        pid = start(words, [file.fileno() for file in (given, out, err)], cwd, env)
        watched = os.pidfd_open(pid)
        try:
            if not select.select([watched], [], [], limit_s)[0]:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(words), limit_s)
        finally:
            os.close(watched)
            _, status = os.waitpid(pid, 0)
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(list(words), os.waitstatus_to_exitcode(status),
                                           out.read(), err.read())


def start(words: Sequence[str], streams: Sequence[int], cwd: Path | None, env: Mapping[str, str],
          *, own_session: bool = False) -> int:
    """Start one command line with these streams; return its pid, which the caller awaits."""
    variables = dict(env)
    has_threads = threading.active_count() > 1
    if not has_threads:
        _import_as_forks_did()
    pid = os.fork()
    if pid == 0:
        if own_session:
            os.setsid()
        if has_threads:
            _exec(words, streams, cwd, variables)
        _child(words, streams, cwd, variables)
    return pid


OURS = ("engine.", "harness.", "kopt_tui.cli.", "kopt_tui.commands.", "kopt_tui.snapshot.")
"""Modules whose import has no side effects."""
_names = os.memfd_create("imported-by-forks")
fcntl.fcntl(_names, fcntl.F_SETFL, os.O_APPEND)


def _import_as_forks_did() -> None:
    names = os.pread(_names, os.fstat(_names).st_size, 0).decode().split()
    for name in set(names) - sys.modules.keys():
        importlib.import_module(name)


def _record_imports() -> None:
    names = [name for name in sys.modules if name.startswith(OURS)]
    known = os.pread(_names, os.fstat(_names).st_size, 0).decode().split()
    os.write(_names, "".join(f"{name}\n" for name in set(names).difference(known)).encode())


def exit_code(program: Callable[[], object], **env: str) -> int:
    """Run a function in a fork with these variables; return its exit code, -N after signal N."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.environ.update(env)
            program()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _exec(words: Sequence[str], streams: Sequence[int], cwd: Path | None,
          env: Mapping[str, str]) -> NoReturn:
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        if cwd is not None:
            os.chdir(cwd)
        os.execve(sys.executable, [sys.executable, "-m", "kopt_tui.main", *words], dict(env))
    finally:
        os._exit(127)


def _child(words: Sequence[str], streams: Sequence[int], cwd: Path | None,
           env: Mapping[str, str]) -> NoReturn:
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdin, sys.stdout, sys.stderr = (
            io.TextIOWrapper(open(number, mode, buffering=-1, closefd=False),  # noqa: SIM115
                             encoding="utf-8", line_buffering=number == 2)
            for number, mode in enumerate(("rb", "wb", "wb")))
        os.environ.clear()
        os.environ.update(env)
        if cwd is not None:
            os.chdir(cwd)
        logging.root.handlers.clear()
        warnings.simplefilter("ignore")
        sys.argv = ["kopt", *words]
        from kopt_tui.main import main

        code = main(list(words))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            _record_imports()
        finally:
            os._exit(code)
