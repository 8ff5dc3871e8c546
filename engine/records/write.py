"""The campaign's files for people: results, logs, snapshots, the table of kept gains.

They are written from what the journal knows and are never read back.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.campaign import Setup
from engine.candidates import Entry
from engine.journal.read import Reader
from engine.keeper import Judged
from engine.records import pages, story
from engine.workers.base import LOG, Task
from harness import results
from harness.trials import Trial


class Records:
    """Writes one campaign's files; every method may be called again for the same round."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.folder = setup.folder

    def start(self) -> None:
        """Make the file that trials are appended to."""
        if not self.folder.results.exists():
            self.folder.results.write_text(results.HEAD)

    def trials(self, round: int, task: Task, trials: Sequence[Trial]) -> None:
        """Append a search's trials to results.tsv."""
        results.append(self.folder.results, [
            results.row(trial, model=self.setup.target.op, gpu=self.setup.device.name,
                        experiment=f"{round}.{task.slot}.{trial.number}") for trial in trials])

    def candidate(self, round: int, entry: Entry) -> None:
        """Store a candidate's patch beside its round."""
        folder = self.folder.round(round) / "candidates" / entry.candidate.slot
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{entry.id}.patch").write_bytes(entry.patch.data)

    def verdict(self, round: int, judged: Judged) -> None:
        folder = self.folder.round(round) / "candidates" / judged.entry.candidate.slot
        folder.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.format(msgspec.json.encode(judged.verdict), indent=1)
        (folder / f"{judged.entry.id}.verdict.json").write_bytes(text)

    def worker_log(self, round: int, slot: str) -> None:
        """Put what a slot's worker left to tell beside its candidates."""
        path = self.folder.path / "scratch" / slot / LOG
        if path.is_file() and not path.is_symlink():
            folder = self.folder.round(round) / "candidates" / slot
            folder.mkdir(parents=True, exist_ok=True)
            shutil.move(path, folder / LOG)

    def agree(self, reader: Reader) -> None:
        """Make the files say what the journal knows; the same journal makes the same bytes.

        Called after every keep, round and stop, and by an engine that takes over from another.
        """
        found = story.read(reader, self.setup.id, self.setup.manifest.decision.score)
        _put(self.folder.performance, pages.performance(found, self._title))
        _put(self.folder.trend, pages.trend(found))
        _put(self.folder.log, pages.log(found))
        for round in found.past.rounds:
            if round.ended_at is not None:
                self._snapshot(round.n, found.past.best_after(round.n))
                _put(self.folder.round(round.n) / "summary.md", pages.summary(found, round))

    def _snapshot(self, n: int, commit: str) -> None:
        """Store the kernel as it was best after a round."""
        source = self.setup.target.source
        data = self.setup.lineage.read(commit, source)
        path = self.folder.round(n) / "kernel_snapshot" / Path(source).name
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)

    def _title(self, commit: str) -> str:
        return self.setup.lineage.message(commit).splitlines()[0]


def _put(path: Path, text: str) -> None:
    """Make a file say `text`; one that says the beginning of it grows, so that it can be followed.
    """
    data = text.encode(errors="replace")
    before = path.read_bytes() if path.exists() else b""
    if not data.startswith(before):
        path.write_bytes(data)
    elif data != before:
        with path.open("ab") as file:
            file.write(data[len(before):])
