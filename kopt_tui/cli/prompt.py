"""Questions at a terminal, and an error that names the flag where there is none."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from harness.errors import InputError
from kopt_tui.snapshot.phrases import clean

TRIES = 5


class Prompt:
    """Asks a person, if one is there; `quiet` takes every default without asking."""

    def __init__(self, *, quiet: bool) -> None:
        self.asks = not quiet and sys.stdin.isatty() and sys.stderr.isatty()

    def text(self, question: str, flag: str, default: str = "") -> str:
        """Return an answer; without a person the default, or InputError naming the flag."""
        if not self.asks:
            if default:
                return default
            raise InputError(f"{question} is not given", fix=f"use {flag}")
        for _ in range(TRIES):
            answer = self.line(f"{question}{f' [{default}]' if default else ''}: ") or default
            if answer:
                return answer
        raise InputError(f"{question} is not given", fix=f"use {flag}")

    def choice(self, question: str, flag: str, choices: Sequence[str], default: str = "") -> str:
        """Return one of the choices; the only one is taken without asking."""
        if len(choices) == 1:
            return choices[0]
        if not self.asks and not default:
            raise InputError(f"{question} could be {', '.join(map(clean, choices[:6]))}",
                             fix=f"use {flag}")
        told = f"{question} ({', '.join(map(clean, choices[:12]))})"
        for _ in range(TRIES):
            answer = self.text(told, flag, default)
            if answer in choices:
                return answer
            print(f"{clean(answer)!r} is none of them", file=sys.stderr)
        raise InputError(f"{question} is not given", fix=f"use {flag}")

    def line(self, prompt: str) -> str:
        """Return one line, empty at the end of input; the prompt goes to standard error."""
        print(prompt, end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer:
            print(file=sys.stderr)
            raise InputError("nothing was answered", fix="give flags: see kopt new --help")
        return answer.strip()
