"""Has CSV files read in a guarded process, in the target's Python: pandas is not ours to import."""

from __future__ import annotations

import threading
from pathlib import Path

from harness.guard import Confine, Limits
from harness.peer import Peer, PeerDied, PeerError
from harness.reported.table import LIMITS, Fault, Table, from_answer

READ_LIMITS = Limits(wall_s=30.0, output_bytes=1 << 20, memory_bytes=4 << 30, file_bytes=0)
"""Of one file, which a process of its own reads."""


class Reader:
    """Reads one file after another, each in a process that has seen no other."""

    def __init__(self, folder: Path, python: str | None = None,
                 cancel: threading.Event | None = None) -> None:
        self._folder, self._python, self._cancel = folder, python, cancel

    def read(self, path: Path, name: str) -> Table:
        """Return the table in a file. Raises Fault where it is none, Stopped."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with Peer("table", cwd=self._folder, limits=READ_LIMITS, python=self._python,
                  confine=Confine(cards=False), cancel=self._cancel) as peer:
            try:
                return from_answer(peer.ask("read", path=str(path), limits=LIMITS))
            except PeerError as error:
                raise Fault("unreadable", f"{name} {error.what}") from None
            except PeerDied as error:
                raise Fault("unreadable", f"{name}: reading it {error.what}") from None
            except Fault as fault:
                raise Fault(fault.kind, f"{name} {fault.what}") from None
