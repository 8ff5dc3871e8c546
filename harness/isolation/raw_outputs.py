"""Keep what the processes of one verdict print and write, as files for people.

The texts come from candidates: they are stored as bytes, and nothing here interprets them.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.formats import file_copy
from harness.formats.text import one_line
from harness.isolation.process_outcome import Limits, ProcessOutcome

MOST_BYTES = 8 << 20
"""Most bytes of all files of a verdict; the oldest files are deleted to make room."""
FILE_BYTES = 1 << 20
"""Most bytes of one file; of a longer one, the first and the last FILE_BYTES / 2 are kept."""
RUNS = "runs.tsv"
"""The list of processes: number, name, how each ended, seconds, command."""
MOST_RUNS = 2000
PROFILE = "kernel-profile.json"
"""GPU kernels of candidate and incumbent, as timed by the profiler."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class RawOutputs:
    """A folder of numbered files, such as `007-candidate.stderr`; several threads may add some."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._sizes: dict[Path, int] = {}
        self._count = 0
        with contextlib.suppress(OSError):  # a full disk must not fail a verdict
            folder.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, data: bytes) -> None:
        """Store one file, unless it is empty."""
        with self._lock, contextlib.suppress(OSError):
            self._count += 1
            self._store(name, data)

    def add_process(self, name: str, argv: Sequence[str], outcome: ProcessOutcome,
                    limits: Limits) -> None:
        """Store what a process printed, and list it among the runs."""
        with self._lock, contextlib.suppress(OSError):
            self._count += 1
            for stream, data in (("stdout", outcome.stdout), ("stderr", outcome.stderr)):
                self._store(f"{name}.{stream}", data)
            if self._count <= MOST_RUNS:
                cells = (f"{self._count:03}", name, outcome.describe(limits),
                         f"{outcome.wall_s:.3f}", shlex.join(argv))
                with (self._folder / RUNS).open("a", encoding="utf-8", errors="replace") as runs:
                    runs.write(table_row(cells))

    def _store(self, name: str, data: bytes) -> None:
        if not data:
            return
        if len(data) > FILE_BYTES:
            half = FILE_BYTES // 2
            left_out = f"\n[... {len(data) - 2 * half} bytes left out by kopt ...]\n".encode()
            data = data[:half] + left_out + data[-half:]
        path = self._folder / f"{self._count:03}-{_UNSAFE.sub('-', name)[:80]}"
        path.write_bytes(data)
        self._sizes[path] = len(data)
        while sum(self._sizes.values()) > MOST_BYTES:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            oldest.unlink(missing_ok=True)


def table_row(cells: Sequence[str]) -> str:
    """Return a line of a table; tabs and line ends within cells become spaces."""
    return "\t".join(one_line(cell, 500) for cell in cells) + "\n"


_recorder: RawOutputs | None = None


@contextlib.contextmanager
def recording(folder: str) -> Iterator[None]:
    """Keep every guarded process's outputs in a folder within the `with` block; "" keeps none."""
    global _recorder
    before, _recorder = _recorder, RawOutputs(Path(folder)) if folder else None
    try:
        yield
    finally:
        _recorder = before


def keep_process(name: str, argv: Sequence[str], outcome: ProcessOutcome,
                 limits: Limits) -> None:
    """Keep a process's output if outputs are recorded."""
    if _recorder is not None:
        _recorder.add_process(name, argv, outcome, limits)


def keep(name: str, text: str | bytes) -> None:
    """Keep a text under a name if outputs are recorded."""
    if _recorder is not None:
        _recorder.add(name, text.encode(errors="replace") if isinstance(text, str) else text)


def keep_file(name: str, path: Path) -> None:
    """Keep a plain file that a candidate wrote, read up to 4 * FILE_BYTES, if outputs are recorded.
    """
    with contextlib.suppress(OSError), file_copy.open_plain(path) as file:
        keep(name, file.read(4 * FILE_BYTES))
