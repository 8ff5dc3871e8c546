"""Read CSV files with pandas in a guarded process of the target's Python."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

from harness.benchmark.runs.result_table import (
    TABLE_LIMITS,
    BenchmarkFault,
    ResultTable,
    parse_answer,
)
from harness.errors import EnvironmentFault
from harness.formats.text import plain
from harness.isolation.guard import Confine, Limits
from harness.isolation.rpc import Peer, PeerDied, PeerError

READ_LIMITS = Limits(wall_s=24 * 3600.0, output_bytes=1 << 20, memory_bytes=4 << 30, file_bytes=0)
"""For all files of one verdict; `harness/child/read_csv.py` limits the time of one file."""


class CsvReader:
    """Reads one file after another, each in a fork that has seen no other; close it after use.

    The first read imports pandas, which takes about half a second.
    """

    def __init__(self, folder: Path, python: str | None = None,
                 cancel: threading.Event | None = None) -> None:
        self._folder, self._python, self._cancel = folder, python, cancel
        self._peer: Peer | None = None

    def read(self, path: Path, name: str) -> ResultTable:
        """Return the table in a file; `name` is its path for messages.

        Raises BenchmarkFault for a file that is no table, EnvironmentFault if the target's Python
        has no pandas, and Cancelled.
        """
        try:
            answer = self._request(path)
        except PeerError as error:
            raise BenchmarkFault("unreadable", f"{name} {error.what}") from None
        except PeerDied as error:
            answer = {"died": error.what}
        if "missing" in answer:
            python = self._python or sys.executable
            raise EnvironmentFault(
                "cannot import pandas, which reads the benchmark's table: "
                f"{plain(str(answer['missing']), 200)}", where=python,
                fix=f"{python} -m pip install pandas")
        if "died" in answer:
            raise BenchmarkFault("unreadable", f"{name}: reading it {plain(str(answer['died']))}")
        try:
            return parse_answer(answer)
        except BenchmarkFault as fault:
            raise BenchmarkFault(fault.kind, f"{name} {fault.what}") from None

    def _request(self, path: Path) -> dict[str, Any]:
        """Request a file; if a process that has read others dies, try once more in a new one."""
        is_fresh = self._peer is None
        try:
            return self._started_peer().ask("read", path=str(path), limits=TABLE_LIMITS)
        except PeerDied:
            self.close()
            if is_fresh:
                raise
            return self._request(path)

    def _started_peer(self) -> Peer:
        if self._peer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._peer = Peer("read_csv", cwd=self._folder, limits=READ_LIMITS, python=self._python,
                              confine=Confine(cards=False), cancel=self._cancel)
        return self._peer

    def close(self) -> None:
        """End the reading process, if there is one."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def __enter__(self) -> CsvReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
