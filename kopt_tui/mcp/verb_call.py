"""Run one verb of the command line as a child process and return its JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import kopt_tui
from harness.errors import InputError
from harness.formats.text import plain

MAX_ANSWER_BYTES = 8 << 20
ERROR_CHARACTERS = 1000
_HOME = str(Path(kopt_tui.__file__).parent.parent)
_START = (sys.executable, "-P", "-c", "import sys; sys.path.insert(0, sys.argv.pop(1)); "
          "from kopt_tui.main import main; sys.exit(main())", _HOME)
"""Starts kopt without the modules of its current folder, which a stranger may have written."""
_DONE = (0, 1)
"""Exit codes of a verb that has answered; 1 says that the answer is no."""


class VerbFailed(Exception):
    """A verb ended without an answer; the text is its line for a person."""


class VerbCall:
    """Runs verbs in one folder. A cancelled or late call is ended with its process group."""

    def __init__(self, root: Path, workspace: Path, timeout_s: float) -> None:
        self.root, self._workspace, self._timeout_s = root.resolve(), workspace, timeout_s

    def inside(self, path: str) -> str:
        """Return a path inside the server's folder. Raises InputError for any other."""
        whole = (self.root / path).resolve()
        if not whole.is_relative_to(self.root):
            raise InputError(f"the path {plain(path, 200)!r} is outside the folder of this server",
                             where=str(self.root), fix="start kopt mcp in the project's folder")
        return str(whole)

    async def run(self, verb: str, *words: str, stdin: str = "",
                  decode: Callable[[str], Any] = json.loads) -> Any:
        """Return the JSON of a verb. Raises VerbFailed with the verb's own line."""
        process = await asyncio.create_subprocess_exec(
            *_START, verb, *words, "--json", "--workspace", str(self._workspace), cwd=self.root,
            start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, limit=MAX_ANSWER_BYTES)
        try:
            async with asyncio.timeout(self._timeout_s):
                output, errors = await process.communicate(stdin.encode())
        except TimeoutError:
            raise VerbFailed(f"kopt {verb} gave no answer within {self._timeout_s:g} s") from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        text = output.decode(errors="replace")
        if process.returncode not in _DONE or len(output) > MAX_ANSWER_BYTES:
            raise VerbFailed(_failure(verb, text, errors.decode(errors="replace")))
        try:
            return decode(text)
        except ValueError:
            raise VerbFailed(_failure(verb, text, errors.decode(errors="replace"))) from None


def words_of(**options: str | int | float | bool | None) -> list[str]:
    """Return options as words of a command line; None, False and "" leave an option out."""
    words: list[str] = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value not in (None, False, ""):
            words.append(f"{flag}={value}")
    return words


def positional(*values: str) -> list[str]:
    """Return the positional words that are given. Raises InputError for one that is an option."""
    for value in values:
        if value.startswith("-"):
            raise InputError(f"{plain(value, 100)!r} begins with '-'", fix="give a name or a path")
    return [value for value in values if value]


def lines_of_json(text: str) -> dict[str, Sequence[Any]]:
    """Return what a verb prints as one JSON document a line."""
    return {"events": [json.loads(line) for line in text.splitlines() if line.strip()]}


def _failure(verb: str, output: str, errors: str) -> str:
    lines = (errors.strip() or output.strip()).splitlines()
    return plain(lines[-1] if lines else f"kopt {verb} ended without a word", ERROR_CHARACTERS)
