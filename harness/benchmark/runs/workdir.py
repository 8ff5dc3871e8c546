"""A working copy of a tree in which its commands run, supervised by the guard."""

from __future__ import annotations

import hashlib
import math
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from harness.benchmark.runs import result_table
from harness.benchmark.runs.result_table import BenchmarkFault, ResultTable
from harness.benchmark.spec.command_target import BenchmarkMode
from harness.compile import compiler_cache
from harness.errors import Cancelled
from harness.formats import file_copy, shell_command
from harness.isolation import guard, raw_outputs
from harness.isolation.confinement import Confine
from harness.isolation.device_lock import DeviceLock, Turnstile
from harness.isolation.process_outcome import Limits, ProcessOutcome

T = TypeVar("T")
COMMAND_LIMITS = Limits(wall_s=1800.0, output_bytes=64 << 20, file_bytes=8 << 30, processes=4096)


@dataclass(frozen=True, kw_only=True)
class CommandEnvironment:
    """What all commands of a session share: variables, limits, confinement, cancellation."""

    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    limits: Limits = COMMAND_LIMITS
    confined: bool = True
    wrapper: tuple[str, ...] = ()
    """A program with its options that starts each command, such as a profiler."""
    nodes: tuple[str, ...] = ()
    """The files below /dev of the cards that commands may open; empty for all cards."""
    cancel: threading.Event | None = None
    warm: str = ""
    """A kept compiler cache; each working copy starts with a copy of it."""
    until: float | None = None
    """When all commands must have ended, by the monotonic clock."""
    note: Callable[[str], None] = lambda text: None
    """Receives notes for the verdict."""

    @property
    def limits_now(self) -> Limits:
        """Return the limits of a command that starts now."""
        if self.until is None:
            return self.limits
        left_s = max(0.001, self.until - time.monotonic())
        return replace(self.limits, wall_s=min(self.limits.wall_s, left_s))

    @property
    def is_late(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until


class WorkingCopy:
    """A copy of one tree in which commands run.

    Confined commands change only the copy and its home, and see nothing else in the folder
    `hidden`.
    """

    def __init__(self, name: str, tree: Path, folder: Path, environment: CommandEnvironment,
                 frozen: Sequence[str] = (), hidden: Path | None = None) -> None:
        self.name, self.environment = name, environment
        self.folder = folder
        file_copy.remove(folder)
        self.tree, self.home = folder / "tree", folder / "home"
        self.home.mkdir(parents=True)
        if environment.warm:
            compiler_cache.seed(Path(environment.warm), self.home)
        self._may_compile = True
        self._was_killed = False
        self._hidden = () if hidden is None else (str(hidden),)
        file_copy.copy_sources(tree, self.tree)
        self._frozen = {path: _content(self.tree, path) for path in frozen}
        self._sources = [name for entry, name in file_copy.walk(tree, lambda name: name != ".git")
                         if entry.is_file(follow_symlinks=False)]
        self._built: list[tuple[int, int]] = []

    def note_built(self) -> None:
        """Note the state of the tree's own files, which setup and build may have written."""
        self._built = [_state(self.tree / name) for name in self._sources]

    def rewritten(self) -> set[str]:
        """Return the tree's own files that programs have written since it was built."""
        return {name for name, built in zip(self._sources, self._built, strict=True)
                if _state(self.tree / name) != built}

    def run(self, command: str, *, lock: DeviceLock | None = None,
            yields: Turnstile | None = None) -> ProcessOutcome:
        """Run a command. Raises Cancelled, and BenchmarkFault, also for changed frozen files."""
        return self._with_retry(lambda: self._run(command, lock, yields))

    def _with_retry(self, work: Callable[[], T]) -> T:
        """Repeat the first command that times out, as compiled code is cached by then, and the
        first that is killed, as other processes may be the cause.
        """
        try:
            return work()
        except BenchmarkFault as fault:
            if fault.kind == "killed" and not self._was_killed:
                self._was_killed = True
                self.environment.note(
                    f"a run of the {self.name} was killed ({fault.what}) and repeated")
            elif fault.kind == "timeout" and self._may_compile and not self.environment.is_late:
                self._may_compile = False
            else:
                raise
            return self._with_retry(work)

    def _run(self, command: str, lock: DeviceLock | None, yields: Turnstile | None,
             limit_s: float = math.inf) -> ProcessOutcome:
        environment, limits = self.environment, self.environment.limits_now
        limits = replace(limits, wall_s=min(limits.wall_s, limit_s))
        variables, argv = shell_command.split(command)
        env = guard.clean_env(
            compiler_cache.private({**environment.env, **variables}, self.home), home=self.home)
        env["PATH"] = f"{os.path.dirname(environment.python or sys.executable)}:{env['PATH']}"
        writable = (str(self.tree), str(self.home))
        outcome = guard.run(
            [*environment.wrapper, *argv], cwd=self.tree, env=env, limits=limits, lock=lock,
            yields=yields, cancel=environment.cancel, name=self.name,
            confine=Confine(writable=writable, nodes=environment.nodes,
                            hidden=self._hidden)
            if environment.confined else None)
        if environment.cancel is not None and environment.cancel.is_set():
            raise Cancelled("cancelled while a command ran")
        if not outcome.ok:
            reason = f": {line}" if (line := outcome.reason_line) else ""
            raise BenchmarkFault(_kind(outcome), outcome.describe(limits) + reason)
        for path, content in self._frozen.items():
            if _content(self.tree, path) != content:
                raise BenchmarkFault("changed-files", f"changes {path}, which is frozen")
        return outcome

    def benchmark(self, mode: BenchmarkMode, lock: DeviceLock,
                  limit_s: float = math.inf) -> tuple[ResultTable, float]:
        """Run a benchmark and return its table and its seconds. Raises BenchmarkFault."""
        result = self._with_retry(lambda: self._benchmark(mode, lock, limit_s))
        self._may_compile = False
        return result

    def _benchmark(self, mode: BenchmarkMode, lock: DeviceLock,
                   limit_s: float) -> tuple[ResultTable, float]:
        path = self.tree / mode.csv
        was_there = self._remove(path, mode.csv)
        began_ns = self._now_ns()
        try:
            outcome = self._run(mode.command, lock, None, limit_s)
        finally:
            raw_outputs.keep_file(f"{self.name}.csv", path)
        self._expect_fresh(path, mode.csv, began_ns, was_there=was_there,
                           printed=outcome.reason_line)
        table = result_table.read(path, mode.csv, self.folder / "reader", self.environment.python,
                                  self.environment.cancel)
        return table, outcome.wall_s

    def _remove(self, path: Path, name: str) -> bool:
        """Delete an earlier file, so that only this run can have written it."""
        self._expect_inside(path, name)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise BenchmarkFault(
                "unreadable", f"{name} cannot be replaced: {error.strerror}") from None
        return True

    def _expect_inside(self, path: Path, name: str) -> None:
        try:
            inside = path.parent.resolve().is_relative_to(self.tree.resolve())
        except (OSError, RuntimeError):  # a loop of links
            inside = False
        if not inside:
            raise BenchmarkFault("unreadable", f"{name} leads out of the project through a link")

    def _now_ns(self) -> int:
        """Return the file system's time, from a file where no command can write."""
        probe = self.folder / "began"
        probe.unlink(missing_ok=True)
        probe.touch()
        return probe.stat().st_mtime_ns

    def _expect_fresh(self, path: Path, name: str, began_ns: int, *, was_there: bool,
                      printed: str) -> None:
        self._expect_inside(path, name)
        try:
            status = path.lstat()
        except OSError:
            old = " (one from before the run was removed)" if was_there else ""
            last = f"; the last line that it printed: {printed[:80]!r}" if printed else ""
            raise BenchmarkFault(
                "missing-file", f"wrote no {name}{old}{last}",
                fix=f"a printed table can be redirected: COMMAND > {name}" if printed else ""
            ) from None
        if not stat.S_ISREG(status.st_mode):
            raise BenchmarkFault("unreadable", f"{name} is not a plain file")
        if status.st_mtime_ns < began_ns:
            age = (began_ns - status.st_mtime_ns) / 1e9
            raise BenchmarkFault("stale-file", f"{name} is from an earlier run: it was written "
                                               f"{age:.1f} s before this run began")
        if status.st_size > result_table.TABLE_LIMITS["bytes"]:
            raise BenchmarkFault(
                "unreadable",
                f"{name} is larger than {result_table.TABLE_LIMITS['bytes'] >> 10} KiB")


def _content(tree: Path, path: str) -> str:
    """Return the hash of a file of a tree, "" if it is not a plain file inside the tree."""
    full_path = tree / path
    try:
        if not full_path.parent.resolve().is_relative_to(tree.resolve()):
            return ""
        with file_copy.open_plain(full_path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, RuntimeError):
        return ""


def _state(path: Path) -> tuple[int, int]:
    """Return what changes with each write to a file, (0, 0) if it is gone."""
    try:
        status = path.lstat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_ctime_ns


def _kind(outcome: ProcessOutcome) -> result_table.FaultKind:
    if outcome.was_killed:
        return "killed"
    if outcome.ended == "exit":
        return "crash" if (outcome.returncode or 0) < 0 else "exit"
    return outcome.ended
