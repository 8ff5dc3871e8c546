"""The `inbox` backend: a patch that a person or a program has handed in."""

from __future__ import annotations

import re
import threading
from pathlib import Path

from engine.task import Task
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.errors import InputError
from harness.formats.text import plain

MAX_PATCH = 4 << 20
_HYPOTHESIS = re.compile(rb"\AHypothesis: (?P<text>.+)$", re.MULTILINE)


class InboxWorker:
    """Reads the patch file named by the task; `take` puts it away once its fate is recorded."""

    def work(self, task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
        path = Path(task.option)
        tick("reading", path.name, None)
        try:
            with path.open("rb") as file:
                data = file.read(MAX_PATCH + 1)
        except OSError as error:
            raise InputError(f"cannot read it: {error.strerror}", where=path.name) from None
        if len(data) > MAX_PATCH:
            raise InputError(f"larger than {MAX_PATCH >> 20} MiB", where=path.name)
        said = _HYPOTHESIS.search(data)
        return Report(ok=True, summary=f"handed in as {plain(path.name)}", patch=data,
                      hypothesis=said["text"].decode(errors="replace") if said else "")


def take(path: Path) -> None:
    """Move a patch to `taken/`, so that it counts once; raises OSError."""
    taken = path.parent / "taken"
    taken.mkdir(exist_ok=True)
    path.rename(taken / path.name)


def waiting(inbox: Path) -> list[Path]:
    """Return the patches that nobody has taken yet, oldest first."""
    found = [p for p in inbox.glob("*") if p.suffix in (".patch", ".diff") and p.is_file()
             and not p.is_symlink()]
    return sorted(found, key=lambda p: (p.stat().st_mtime, p.name))
