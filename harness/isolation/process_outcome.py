"""The limits of a guarded process, and how it ended, in numbers and in words."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from harness.formats.text import plain

_COMPILER_ERROR = re.compile(r"[^\s:]+:\d+(:\d+)?: (fatal )?error: |.*undefined reference to "
                             r"|.*: cannot find -l|CMake Error at ")
_MAKE = re.compile(r"g?make(\[\d+\])?: \*\*\* ")
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+) in (\S+)', re.MULTILINE)
_NOT_PROJECT = re.compile(r"site-packages|/lib/python|/harness/child/|^<")
_HEAP = re.compile(r"malloc|realloc|free\(\)|munmap_chunk|corrupt|smashing")
_CRASH = re.compile(rf"{_HEAP.pattern}|[Aa]ssert|terminate called|what\(\)|[Ee]rror\b")
EndReason = Literal["exit", "timeout", "output", "memory", "processes", "killed"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a guarded process; time in which it is stopped for a measurement does not count."""

    wall_s: float = 60.0
    output_bytes: int = 1 << 20
    memory_bytes: int | None = None
    file_bytes: int = 4 << 30
    processes: int = 1024
    cpu_s: int | None = None

    def job(self) -> dict[str, object]:
        """Return the fields of a supervisor's job that limit it."""
        rlimits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": self.file_bytes}
        if self.cpu_s is not None:
            rlimits["RLIMIT_CPU"] = self.cpu_s
        return {"rlimits": rlimits, "wall_s": self.wall_s, "output_bytes": self.output_bytes,
                "memory_bytes": self.memory_bytes, "processes": self.processes}


@dataclass(frozen=True, kw_only=True)
class ProcessOutcome:
    """How a guarded process ended; a negative `returncode` is a signal.

    None means that the process did not start, or that its supervisor was killed.
    """

    ended: EndReason
    returncode: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    wall_s: float = 0.0
    stopped_s: float = 0.0
    peak_bytes: int = 0
    leftover: int = 0
    output_bytes: int = 0

    @property
    def ok(self) -> bool:
        return self.ended == "exit" and self.returncode == 0

    @property
    def was_killed(self) -> bool:
        """Whether the process was ended by its owner or by SIGKILL, or its supervisor was killed.

        SIGKILL is also sent when the machine's memory runs out; a shell reports it as 137.
        """
        return self.ended == "killed" or (
            self.ended == "exit" and self.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL))

    @property
    def reason_line(self) -> str:
        """The printed line that most likely says why the process failed; "" if it printed none.

        It is the first error of a compiler, linker or CMake, else the last line that make did not
        print: of standard error, or else of standard output.
        """
        lines = (self.stdout + b"\n" + self.stderr).decode(errors="replace").splitlines()
        last = (line for line in reversed(lines) if line.strip() and not _MAKE.match(line))
        errors = (line for line in lines if _COMPILER_ERROR.match(line))
        return plain(next(errors, None) or next(last, ""), 300).strip()

    @property
    def crash_clue(self) -> str:
        """What a crashed process printed: ` in double.py:9, _kernel: malloc(): corrupted size`.

        It is the innermost line of the project's Python, and the last error that was printed; ""
        without either. The program can print anything, so nothing is decided by this.
        """
        if self.ended != "exit" or (self.returncode or 0) >= 0:
            return ""
        printed, _, stack = self.stderr.decode(errors="replace").partition("Fatal Python error: ")
        frames = [f" in {PurePath(frame[1]).name}:{frame[2]}, {frame[3]}"
                  for frame in _FRAME.finditer(stack) if not _NOT_PROJECT.search(frame[1])]
        errors = [f": {line.strip()}" for line in printed.splitlines() if _CRASH.search(line)]
        heap = "; memory is damaged, as by a write outside a tensor: check bounds and masks" \
            if errors and _HEAP.search(errors[-1]) else ""
        return plain("".join((*frames[:1], *errors[-1:])), 300) + heap

    def describe(self, limits: Limits) -> str:
        """Return in a few words how the process ended."""
        crashed = self.returncode is not None and self.returncode < 0
        return {"timeout": f"ran past its limit of {limits.wall_s:g} s",
                "output": f"printed more than {limits.output_bytes >> 10} KiB",
                "memory": f"took more than {(limits.memory_bytes or 0) >> 20} MiB of memory",
                "processes": f"started more than {limits.processes} processes",
                "killed": "was stopped",
                "exit": f"crashed ({signal_name(-(self.returncode or 0))})" if crashed
                else f"exited with {self.returncode}"}[self.ended]


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
