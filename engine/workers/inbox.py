"""The `inbox` backend: a patch that a person or a program has submitted, or a whole source."""

from __future__ import annotations

import re
import threading
from pathlib import Path

from engine.task import Task
from engine.workers.protocol import Report, Tick, WorkerBench
from harness.errors import InputError
from harness.formats.text import plain

MAX_PATCH = 4 << 20
SOURCE = ".source"
"""Suffix of a submitted file that takes the place of the kernel's source."""
_HYPOTHESIS = re.compile(rb"\AHypothesis: (?P<text>.+)$", re.MULTILINE)


def work(task: Task, bench: WorkerBench, tick: Tick, cancel: threading.Event) -> Report:
    """Read the patch or source that the task names; call `take` once it is decided on."""
    path = Path(task.option)
    tick("reading", path.name, None)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PATCH + 1)
    except OSError as error:
        raise InputError(f"cannot read the patch: {error.strerror}", where=path.name) from None
    if len(data) > MAX_PATCH:
        raise InputError(f"the patch is larger than {MAX_PATCH >> 20} MiB", where=path.name)
    header = _HYPOTHESIS.search(data)
    hypothesis = header["text"].decode(errors="replace") if header else ""
    summary = f"submitted as {plain(path.name)}"
    if path.suffix == SOURCE and bench.target.source:
        source = data[header.end():].removeprefix(b"\n\n") if header else data
        (Path(bench.worktree) / bench.target.source).write_bytes(source)
        return Report(ok=True, summary=summary, hypothesis=hypothesis)
    return Report(ok=True, summary=summary, patch=data, hypothesis=hypothesis)


def take(path: Path) -> None:
    """Move a submitted file to `taken/`, so that it is judged only once. Raises OSError."""
    folder = path.parent / "taken"
    folder.mkdir(exist_ok=True)
    path.rename(folder / path.name)


def waiting(inbox: Path) -> list[Path]:
    """Return the patches and sources that no round has judged yet, oldest first."""
    patches = [path for path in inbox.glob("*") if path.suffix in (".patch", ".diff", SOURCE)
               and path.is_file() and not path.is_symlink()]
    return sorted(patches, key=lambda path: (path.stat().st_mtime, path.name))
