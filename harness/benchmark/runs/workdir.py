"""One side of a comparison: a copy of a tree in which its commands run, under the guard."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from harness.benchmark.runs.csv_reader import CsvReader
from harness.benchmark.runs.result_table import TABLE_LIMITS, BenchmarkFault, FaultKind, ResultTable
from harness.benchmark.spec.command_line import words
from harness.benchmark.spec.command_target import BenchmarkMode
from harness.compile import compiler_cache
from harness.errors import Cancelled
from harness.formats import file_copy
from harness.formats.text import plain
from harness.isolation import guard
from harness.isolation.device_lock import DeviceLock, Turnstile
from harness.isolation.guard import Confine, Limits, ProcessOutcome

T = TypeVar("T")
COMMAND_LIMITS = Limits(wall_s=1800.0, output_bytes=64 << 20, file_bytes=8 << 30, processes=4096)


@dataclass(frozen=True, kw_only=True)
class CommandEnvironment:
    """What the commands of both sides share: environment, limits, who may stop them."""

    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    limits: Limits = COMMAND_LIMITS
    confined: bool = True
    nodes: tuple[str, ...] = ()
    """The files below /dev of the cards that they may open, empty for all."""
    cancel: threading.Event | None = None
    warm: str = ""
    """A kept cache of compilers, which each side starts with a copy of."""
    until: float | None = None
    """When all commands have to be over, by the monotonic clock."""
    tell: Callable[[str], None] = lambda text: None
    """Takes what a verdict is to note."""

    @property
    def limits_now(self) -> Limits:
        """The limits of a command that starts now."""
        if self.until is None:
            return self.limits
        left_s = max(0.001, self.until - time.monotonic())
        return replace(self.limits, wall_s=min(self.limits.wall_s, left_s))

    @property
    def late(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until


class WorkingCopy:
    """A copy of one tree below `folder`; a command sees and changes only this copy, and its home.

    What a build or a first run leaves there, later runs find: each side has its own.
    """

    def __init__(self, name: str, tree: Path, folder: Path, place: CommandEnvironment,
                 frozen: Sequence[str] = ()) -> None:
        self.name, self.place = name, place
        self.folder = folder
        file_copy.remove(folder)
        self.tree, self.home = folder / "tree", folder / "home"
        self.home.mkdir(parents=True)
        if place.warm:
            compiler_cache.seed(Path(place.warm), self.home)
        self._cold = True
        self._was_killed = False
        shutil.copytree(tree, self.tree, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        self._sealed = {path: _content(self.tree, path) for path in frozen}

    def run(self, command: str, *, lock: DeviceLock | None = None,
            yields: Turnstile | None = None) -> ProcessOutcome:
        """Run a command to its end, with the frozen files as they were before it and after.

        Raises Fault unless it exits with 0, Cancelled, ValueError.
        """
        return self._patiently(lambda: self._run(command, lock, yields))

    def _patiently(self, work: Callable[[], T]) -> T:
        """Do what may compile: the first that runs out of its time is done once more, with what it
        has compiled by then; so is the first that is killed, maybe for what others did.
        """
        try:
            return work()
        except BenchmarkFault as fault:
            if fault.kind == "killed" and not self._was_killed:
                self._was_killed = True
                self.place.tell(
                    f"a run of the {self.name} was killed ({fault.what}) and done again")
            elif fault.kind == "timeout" and self._cold and not self.place.late:
                self._cold = False
            else:
                raise
            return self._patiently(work)

    def _run(self, command: str, lock: DeviceLock | None,
             yields: Turnstile | None) -> ProcessOutcome:
        place, limits = self.place, self.place.limits_now
        assigned, argv = words(command)
        env = guard.clean_env(
            compiler_cache.private({**place.env, **assigned}, self.home), home=self.home
        )
        env["PATH"] = f"{os.path.dirname(place.python or sys.executable)}:{env['PATH']}"
        writable = (str(self.tree), str(self.home))
        outcome = guard.run(
            argv, cwd=self.tree, env=env, limits=limits, lock=lock,
            yields=yields, cancel=place.cancel,
            confine=Confine(writable=writable, nodes=place.nodes) if place.confined else None)
        if place.cancel is not None and place.cancel.is_set():
            raise Cancelled("stopped while a command ran")
        if not outcome.ok:
            raise BenchmarkFault(_kind(outcome), _told(outcome, limits))
        for path, content in self._sealed.items():
            if _content(self.tree, path) != content:
                raise BenchmarkFault("changed-files", f"changes {path}, which is frozen")
        return outcome

    def benchmark(self, mode: BenchmarkMode, reader: CsvReader,
                  lock: DeviceLock) -> tuple[ResultTable, float]:
        """Run a benchmark and read what it wrote just now; returns its table and seconds.

        Raises Fault, one kind for each thing that can be wrong.
        """
        found = self._patiently(lambda: self._benchmark(mode, reader, lock))
        self._cold = False
        return found

    def _benchmark(self, mode: BenchmarkMode, reader: CsvReader,
                   lock: DeviceLock) -> tuple[ResultTable, float]:
        path = self.tree / mode.csv
        had = self._remove(path, mode.csv)
        began = self._now_ns()
        outcome = self._run(mode.command, lock, None)
        self._expect_fresh(path, mode.csv, began, had=had)
        return reader.read(path, mode.csv), outcome.wall_s

    def _remove(self, path: Path, name: str) -> bool:
        """Take away what lies in the file's place, so that only this run can have written it."""
        self._expect_inside(path, name)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise BenchmarkFault(
                "unreadable", f"{name} cannot be replaced: {error.strerror}"
            ) from None
        return True

    def _expect_inside(self, path: Path, name: str) -> None:
        try:
            inside = path.parent.resolve().is_relative_to(self.tree.resolve())
        except (OSError, RuntimeError):  # a loop of links
            inside = False
        if not inside:
            raise BenchmarkFault("unreadable", f"{name} leads out of the project by a link")

    def _now_ns(self) -> int:
        """Return the time by the clock that stamps files, in a place that no command can write."""
        probe = self.folder / "began"
        probe.unlink(missing_ok=True)
        probe.touch()
        return probe.stat().st_mtime_ns

    def _expect_fresh(self, path: Path, name: str, began_ns: int, *, had: bool) -> None:
        self._expect_inside(path, name)
        try:
            found = path.lstat()
        except OSError:
            old = " (one from before the run was removed)" if had else ""
            raise BenchmarkFault("missing-file", f"wrote no {name}{old}") from None
        if not stat.S_ISREG(found.st_mode):
            raise BenchmarkFault("unreadable", f"{name} is no plain file")
        if found.st_mtime_ns < began_ns:
            age = (began_ns - found.st_mtime_ns) / 1e9
            raise BenchmarkFault(
                "stale-file", f"{name} is of an earlier run: it is {age:.1f} s older than this one"
            )
        if found.st_size > TABLE_LIMITS["bytes"]:
            raise BenchmarkFault(
                "unreadable", f"{name} is larger than {TABLE_LIMITS['bytes'] >> 10} KiB"
            )


def _content(tree: Path, path: str) -> str:
    """Return what a file of a tree holds, as a hash; empty for what is no plain file inside it."""
    whole = tree / path
    try:
        if not whole.parent.resolve().is_relative_to(tree.resolve()):
            return ""
        descriptor = os.open(whole, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, RuntimeError):
        return ""


def _kind(outcome: ProcessOutcome) -> FaultKind:
    if outcome.was_killed:
        return "killed"
    if outcome.ended == "exit":
        return "crash" if (outcome.returncode or 0) < 0 else "exit"
    return outcome.ended


def _told(outcome: ProcessOutcome, limits: Limits) -> str:
    """Say how a command ended, with the last line that it printed."""
    said = [*outcome.stdout.decode(errors="replace").splitlines(),
            *outcome.stderr.decode(errors="replace").splitlines()]
    last = next((plain(line, 300).strip() for line in reversed(said) if line.strip()), "")
    ended = outcome.describe(limits)
    return f"{ended}: {last}" if last else ended
