"""Has CSV files read in a guarded process, in the target's Python: pandas is not ours to import."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from harness.benchmark.runs.result_table import (
    TABLE_LIMITS,
    BenchmarkFault,
    ResultTable,
    from_answer,
)
from harness.formats.text import plain
from harness.isolation.guard import Confine, Limits
from harness.isolation.rpc import Peer, PeerDied, PeerError

READ_LIMITS = Limits(wall_s=24 * 3600.0, output_bytes=1 << 20, memory_bytes=4 << 30, file_bytes=0)
"""Of all that is read for one verdict; how long one file may take, `harness/child/read_csv.py`
says.
"""


class CsvReader:
    """Reads one file after another, each in a fork that has seen no other; to be closed."""

    def __init__(self, folder: Path, python: str | None = None,
                 cancel: threading.Event | None = None) -> None:
        self._folder, self._python, self._cancel = folder, python, cancel
        self._peer: Peer | None = None

    def read(self, path: Path, name: str) -> ResultTable:
        """Return the table in a file. Raises Fault where it is none, Cancelled."""
        try:
            answer = self._ask(path)
        except PeerError as error:
            raise BenchmarkFault("unreadable", f"{name} {error.what}") from None
        except PeerDied as error:
            answer = {"died": error.what}
        if "died" in answer:
            raise BenchmarkFault("unreadable", f"{name}: reading it {plain(str(answer['died']))}")
        try:
            return from_answer(answer)
        except BenchmarkFault as fault:
            raise BenchmarkFault(fault.kind, f"{name} {fault.what}") from None

    def _ask(self, path: Path) -> dict[str, Any]:
        """Ask for a file; what a process that has read others dies of may be none of its fault."""
        fresh = self._peer is None
        try:
            return self._reading().ask("read", path=str(path), limits=TABLE_LIMITS)
        except PeerDied:
            self.close()
            if fresh:
                raise
            return self._ask(path)

    def _reading(self) -> Peer:
        if self._peer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._peer = Peer("read_csv", cwd=self._folder, limits=READ_LIMITS, python=self._python,
                              confine=Confine(cards=False), cancel=self._cancel)
        return self._peer

    def close(self) -> None:
        """End the process that reads, if there is one."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def __enter__(self) -> CsvReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
