"""The `inbox` backend: a patch that a person or a program has handed in."""

from __future__ import annotations

import threading
from pathlib import Path

from engine.workers.base import Bench, Report, Task, Tick
from harness.errors import InputError

MAX_PATCH = 4 << 20


class InboxWorker:
    """Takes the patch file named by the task; it is moved to `taken/`, so that it counts once."""

    def work(self, task: Task, bench: Bench, tick: Tick, cancel: threading.Event) -> Report:
        path = Path(task.option)
        tick("reading", path.name, None)
        try:
            if path.stat().st_size > MAX_PATCH:
                raise InputError(f"larger than {MAX_PATCH >> 20} MiB", where=path.name)
            data = path.read_bytes()
            taken = path.parent / "taken"
            taken.mkdir(exist_ok=True)
            path.rename(taken / path.name)
        except OSError as error:
            raise InputError(f"cannot read it: {error.strerror}", where=path.name) from None
        return Report(ok=True, summary=f"handed in as {path.name}", patch=data)


def waiting(inbox: Path) -> list[Path]:
    """Return the patches that nobody has taken yet, oldest first."""
    found = [p for p in inbox.glob("*") if p.suffix in (".patch", ".diff") and p.is_file()
             and not p.is_symlink()]
    return sorted(found, key=lambda p: (p.stat().st_mtime, p.name))
