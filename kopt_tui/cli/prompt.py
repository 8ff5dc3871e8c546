"""Questions at a terminal; without one, an error that names the flag to use instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from harness.errors import InputError
from kopt_tui.cli.text_lines import print_text, terminal_width, wrapped
from kopt_tui.snapshot.phrases import clean

TRIES = 5


class Prompt:
    """Asks a person at a terminal; `quiet` takes every default without asking."""

    def __init__(self, *, quiet: bool) -> None:
        self.interactive = not quiet and sys.stdin.isatty() and sys.stderr.isatty()

    def text(self, question: str, flag: str, default: str = "", *, optional: bool = False,
             check: Callable[[str], object] = str) -> str:
        """Return an answer, without a terminal the default. Raises InputError if there is none.

        Asks again after an answer for which `check` raises InputError, and after an empty one if
        it is not optional.
        """
        if not self.interactive and default:
            return default
        for _ in range(TRIES if self.interactive else 0):
            answer = self.line(f"{question}{f' [{default}]' if default else ''}: ") or default
            if not answer:
                if optional:
                    return ""
                continue
            try:
                check(answer)
            except InputError as error:
                print_text(clean(str(error)), sys.stderr)
            else:
                return answer
        raise InputError(f"{question} is not given", fix=f"use {flag}")

    def choice(self, question: str, flag: str, choices: Sequence[str], default: str = "") -> str:
        """Return one of the choices; a single choice is taken without asking."""
        if len(choices) == 1:
            return choices[0]
        if not self.interactive and not default:
            raise InputError(f"{question} could be {', '.join(map(clean, choices[:6]))}",
                             fix=f"use {flag}")
        listed = f"{question} ({', '.join(map(clean, choices[:12]))})"
        for _ in range(TRIES):
            answer = self.text(listed, flag, default)
            if answer in choices:
                return answer
            print_text(f"{clean(answer)!r} is not one of the choices", sys.stderr)
        raise InputError(f"{question} is not given", fix=f"use {flag}")

    def line(self, prompt: str) -> str:
        """Return one line of input; the prompt goes to stderr.

        Raises InputError if the input ended; after that nothing is asked.
        """
        lines = wrapped(prompt.rstrip(), terminal_width(sys.stderr), 2)
        print("\n".join(lines), end=" ", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer:
            print(file=sys.stderr)
            self.interactive = False
            raise InputError("the input ended before an answer",
                             fix="use flags instead: see kopt new --help")
        return answer.strip()
