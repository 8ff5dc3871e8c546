"""Run one verb of the command line as a child process and return its JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import kopt_tui
from engine.manifest import load
from engine.repository.git import locate
from harness.errors import InputError
from harness.formats.text import plain

MAX_ANSWER_BYTES = 8 << 20
ERROR_CHARACTERS = 1000
_HOME = str(Path(kopt_tui.__file__).parent.parent)
_START = (sys.executable, "-P", "-c", "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
          "os.getppid() == int(sys.argv.pop(2)) or sys.exit(1); "
          "sys.path.insert(0, sys.argv.pop(1)); from kopt_tui.main import main; sys.exit(main())",
          _HOME)
"""Starts kopt without importing modules from the current folder, which others may have written.

The process is killed when the server dies (PR_SET_PDEATHSIG, SIGKILL); its children die with it.
"""
_DONE = (0, 1)
"""Exit codes of a verb that has answered; 1 says that the answer is no."""
MOST_KERNEL_CALLS = 4
"""Verdicts and searches that run at once; others wait."""
BEAT_S = 5.0
"""Seconds between messages that a call continues: many clients give up after a minute."""

_ERROR = '{"error": '
"""How an error begins; needed because a refusal has an exit code of `_DONE`."""
Beat = Callable[[float], Awaitable[None]]
"""Receives how many seconds a call has taken so far."""


class VerbFailed(Exception):
    """A verb ended without an answer; the text is its error message."""


class VerbCall:
    """Runs verbs in one folder. A cancelled or late call is ended with its process group."""

    def __init__(self, root: Path, workspace: Path, timeout_s: float) -> None:
        self.root, self._workspace, self._timeout_s = root.resolve(), workspace, timeout_s
        self._kernel_calls = asyncio.Semaphore(MOST_KERNEL_CALLS)

    def inside(self, path: str) -> str:
        """Return a path inside the server's folder. Raises InputError for any other."""
        whole = (self.root / path).resolve()
        if not whole.is_relative_to(self.root):
            raise InputError(f"the path {plain(path, 200)!r} is outside the folder of this server",
                             where=str(self.root), fix="start kopt mcp in the project's folder")
        return str(whole)

    def manifest(self, path: str) -> str:
        """Return a manifest inside the server's folder whose project lies there too."""
        whole = self.inside(path)
        project = load.load(Path(whole)).project
        if not Path(project).resolve().is_relative_to(self.root):
            raise InputError(f"its project {plain(project, 200)!r} is outside the folder of this "
                             "server", where=plain(path, 200),
                             fix="start kopt mcp with --root DIR, a folder that contains both")
        return whole

    def kernel(self, what: str) -> list[str]:
        """Return arguments for a FILE, FILE:FUNCTION or FOLDER, in a project of the server.

        Raises InputError for a path outside the server's folder.
        """
        path, colon, name = what.partition(":")
        whole = self.inside(path)
        repository = locate(Path(whole).parent)
        is_inside = repository is None or repository.work_tree is None or \
            repository.work_tree.resolve().is_relative_to(self.root)
        return [whole + colon + name, *([] if is_inside else [f"--project={self.root}"])]

    async def run_on_kernel(self, verb: str, *arguments: str, stdin: str = "", beat: Beat) -> Any:
        """Return the JSON of a verb that works on a kernel; `beat` is called while it does."""
        began, call = time.monotonic(), asyncio.ensure_future(
            self._run_when_free(verb, arguments, stdin))
        try:
            while not (await asyncio.wait([call], timeout=BEAT_S))[0]:
                await beat(time.monotonic() - began)
            return call.result()
        finally:
            if call.cancel():
                with suppress(asyncio.CancelledError):
                    await call

    async def _run_when_free(self, verb: str, arguments: Sequence[str], stdin: str) -> Any:
        async with self._kernel_calls:
            return await self.run(verb, *arguments, stdin=stdin)

    async def run(self, verb: str, *arguments: str, stdin: str = "", lines: bool = False) -> Any:
        """Return a verb's JSON, or with `lines` that of each line. Raises VerbFailed."""
        process = await asyncio.create_subprocess_exec(
            *_START, str(os.getpid()), verb, *arguments, "--json", "--workspace",
            str(self._workspace), cwd=self.root, start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, limit=MAX_ANSWER_BYTES)
        try:
            async with asyncio.timeout(self._timeout_s):
                output, errors = await process.communicate(stdin.encode())
        except TimeoutError:
            raise VerbFailed(f"kopt {verb} did not answer within {self._timeout_s:g} s") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        text = output.decode(errors="replace")
        if len(output) > MAX_ANSWER_BYTES:
            raise VerbFailed(f"the answer of kopt {verb} is larger than "
                             f"{MAX_ANSWER_BYTES >> 20} MiB")
        with suppress(ValueError):
            if process.returncode in _DONE and not text.startswith(_ERROR):
                return [json.loads(line) for line in text.split("\n") if line] \
                    if lines else json.loads(text)
        raise VerbFailed(_failure(verb, text, errors.decode(errors="replace")))


def words_of(**options: str | int | float | bool | None) -> list[str]:
    """Return options as words of a command line; None, False and "" leave an option out."""
    arguments: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            arguments.append(flag)
        elif value is not None and value is not False and value != "":
            arguments.append(f"{flag}={value}")
    return arguments


def positional(*values: str) -> list[str]:
    """Return the positional words that are given. Raises InputError for one that is an option."""
    for value in values:
        if value.startswith("-"):
            raise InputError(f"{plain(value, 100)!r} begins with '-'", fix="give a name or a path")
    return [value for value in values if value]


def _failure(verb: str, output: str, errors: str) -> str:
    lines = (errors.strip() or output.strip()).splitlines()
    return plain(lines[-1].removeprefix("kopt: ") if lines else f"kopt {verb} printed nothing",
                 ERROR_CHARACTERS)
