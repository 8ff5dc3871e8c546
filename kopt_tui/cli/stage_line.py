"""Shows on stderr what a verb does, and for how long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.requests import Progress
from kopt_tui.cli.output import print_note
from kopt_tui.snapshot import phrases

SLOW_S = 3
"""Seconds after which the line of a stage shows how long it has taken."""


@contextmanager
def stages(*, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """Yield a callback that prints the current stage to stderr.

    If stderr is no terminal, it prints only what is waited for, and stages that take long.
    """
    if quiet:
        yield lambda line: None
        return
    line = StageLine() if sys.stderr.isatty() else StageLog()
    ticker = threading.Thread(target=line.tick, name="kopt-stage", daemon=True)
    ticker.start()
    try:
        yield line.show
    finally:
        line.ended.set()
        ticker.join()
        line.end()


class StageLine:
    """The current stage on one line of a terminal, with its seconds if it takes long."""

    every_s = 1.0

    def __init__(self) -> None:
        self.ended, self._waits = threading.Event(), False
        self._stage, self._began = "", time.monotonic()
        self._interrupted = "", 0.0
        """The stage before a wait, and the seconds that it had taken."""
        self._lock = threading.Lock()

    def show(self, line: Progress) -> None:
        """Enter a stage; one that continues after a wait keeps its seconds."""
        waits = line.stage == "waiting"
        stage = phrases.clean(line.detail) if waits else \
            f"{line.stage} {phrases.clean(line.detail)}"
        now = time.monotonic()
        with self._lock:
            if waits and not self._waits:
                self._interrupted = self._stage, now - self._began
            before, seconds = self._interrupted
            self._waits, self._stage = waits, stage
            self._began = now - seconds if stage == before else now
            self.enter(line)

    def tick(self) -> None:
        """Print the seconds of the stage until `ended` is set."""
        while not self.ended.wait(self.every_s):
            self.print_seconds()

    def print_seconds(self) -> None:
        """Print for how long the stage has lasted, if it takes long."""
        with self._lock:
            seconds = int(time.monotonic() - self._began)
            if self._stage and seconds >= SLOW_S:
                self.write(f"{self._stage}, {seconds} s")

    def enter(self, line: Progress) -> None:
        self.write(self._stage)

    def end(self) -> None:
        """Clear the line for what comes next."""
        self.write("")

    def write(self, text: str) -> None:
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


class StageLog(StageLine):
    """The stages that take long, and what is waited for, one line each."""

    every_s = 30.0

    def __init__(self) -> None:
        super().__init__()
        self._waits_printed = WaitPrinter()

    def enter(self, line: Progress) -> None:
        self._waits_printed.show(line)

    def end(self) -> None:
        """Leave the lines as they are."""

    def write(self, text: str) -> None:
        print_note(text)


class WaitPrinter:
    """Prints what the harness waits for, such as another kopt that measures on the device.

    Repeated waits for the same process are printed once.
    """

    def __init__(self) -> None:
        self._obstacle = ""

    def show(self, line: Progress) -> None:
        obstacle = line.detail.partition(" since ")[0]
        if line.stage == "waiting" and obstacle != self._obstacle:
            self._obstacle = obstacle
            print_note(line.detail)
