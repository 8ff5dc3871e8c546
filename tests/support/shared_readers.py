"""One reader of CSV files for all verdicts of a test worker: importing pandas takes half a second.

Every file is still read in a process of its own, which is forked and has seen no other file.
"""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.runs import result_table
from harness.isolation.rpc import Peer

_real = result_table.Peer
_shared: list[Peer] = []


class SharedReader:
    """Replaces the reader of one verdict; `close` leaves the shared process running."""

    def __init__(self, program: str, *, python: str | None, cwd: Path, **settings: Any) -> None:
        self._own = _real(program, python=python, cwd=cwd, **settings) if python or \
            settings["cancel"] is not None else None
        if self._own is None and not _shared:
            folder = tempfile.TemporaryDirectory(prefix="kopt-reader-")
            _shared.append(_real(program, python=python, cwd=Path(folder.name), **settings))
            atexit.register(folder.cleanup)
            atexit.register(_shared[0].close)

    def ask(self, name: str, **values: Any) -> dict[str, Any]:
        try:
            return (self._own or _shared[0]).ask(name, **values)
        except result_table.PeerDied:
            if self._own is None:
                _shared.clear()
            raise

    def close(self) -> None:
        if self._own is not None:
            self._own.close()


@pytest.fixture(autouse=True, scope="module")
def one_reader() -> Iterator[None]:
    """Let the verdicts of a test module read their tables through one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(result_table, "Peer", SharedReader)
        yield
