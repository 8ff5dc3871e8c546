"""The campaign's files for people: results, logs, snapshots, the table of kept gains.

They are written from what the journal knows and are never read back.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine import globs
from engine.campaign.setup import Setup
from engine.history import campaign_view, kernel_splits
from engine.history.campaign_view import CampaignCommands
from engine.history.history import CampaignHistory
from engine.journal.read import Reader
from engine.journal.records import Round, VerdictRow
from engine.journal.write import Writer
from engine.judge.candidate import JudgedCandidate
from engine.records import optimize_log, performance, results_tsv, round_summary, trend
from engine.records.report.html_page import html
from engine.records.report.markdown_report import markdown
from engine.task import Task
from engine.workers.protocol import LOG
from harness.errors import InputError
from harness.search.trials import trials_tsv
from harness.search.trials.trials import Trial

SETTLING = 2
"""Rounds of which more may be said: the last one, and the one before, which names the next."""
SNAPSHOT_FILES = 64
"""Files of a kernel snapshot at most; a glob may name a whole project."""


class Records:
    """Writes one campaign's files; every method may be called again for the same round."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.folder = setup.folder
        self._kernels: dict[str, dict[str, bytes]] = {}
        """By commit: a few, each read once."""
        self._settled = 0
        """Rounds up to this one are written, and nothing new is said of them."""

    def start(self) -> None:
        """Make the file that trials are appended to."""
        if not self.folder.results.exists():
            self.folder.results.write_text(trials_tsv.HEAD)

    def trials(self, round: int, task: Task, trials: Sequence[Trial],
               writer: Writer | None = None) -> None:
        """Append a search's trials to results.tsv; `writer` makes the journal know them."""
        rows = results_tsv.of_trials(trials, round=round, slot=task.slot, **self._whose)
        if writer is not None:
            writer.add_trials(self.setup.id, round, task.slot, trials)
        trials_tsv.append(self.folder.results, rows)

    def verdict(self, round: int, judged: JudgedCandidate) -> None:
        """Store a verdict beside its candidate."""
        _put(self._beside(round, judged.entry.candidate.slot) / f"{judged.entry.id}.verdict.json",
             _readable(msgspec.json.encode(judged.verdict)))

    def worker_log(self, round: int, slot: str) -> None:
        """Put what a slot's worker left to tell beside its candidates."""
        path = self.folder.path / "scratch" / slot / LOG
        if path.is_file() and not path.is_symlink():
            shutil.move(path, self._beside(round, slot) / LOG)

    def agree(self, reader: Reader) -> None:
        """Make the files say what the journal knows; the same journal makes the same bytes.

        Called after every keep, round and stop, and by an engine that takes over from another;
        rounds long over are left to the first call.
        """
        found = campaign_view.read(reader, self.setup.id, self.setup.manifest.decision.score,
                           CampaignCommands.of(self.setup.manifest))
        found = msgspec.structs.replace(found, splits=kernel_splits.of(found.history, self._kernel))
        _say(self.folder.performance, performance.page(found))
        _say(self.folder.trend, trend.page(found))
        _say(self.folder.log, optimize_log.page(found))
        _say(self.folder.results, results_tsv.page(reader, self.setup.id, **self._whose))
        ended = [round for round in found.history.rounds if round.ended_at is not None]
        for round in ended:
            if round.n > self._settled:
                self._snapshot(round, found.history)
                _say(self.folder.round(round.n) / "summary.md", round_summary.page(found, round))
        self._candidates(found.history)
        self._settled = max([0, *(round.n for round in ended[:-SETTLING])])
        if found.stops:
            _say(self.folder.report, markdown(reader, found.row))
            _say(self.folder.page, html(reader, found.row))

    @property
    def _whose(self) -> dict[str, str]:
        return {"model": self.setup.target.op, "gpu": self.setup.device.name}

    def _beside(self, round: int, slot: str) -> Path:
        folder = self.folder.round(round) / "candidates" / slot
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _candidates(self, past: CampaignHistory) -> None:
        """Store every candidate's patch, unless it was pruned, and its newest verdict."""
        newest: dict[str, VerdictRow] = {row.candidate: row for row in past.verdicts.values()}
        for candidate in past.candidates.values():
            if candidate.round <= self._settled:
                continue
            patch = self.folder.path / candidate.patch_path
            beside = self._beside(candidate.round, candidate.slot)
            if patch.is_file():
                _put(beside / f"{candidate.id}.patch", patch.read_bytes())
            if row := newest.get(candidate.id):
                _put(beside / f"{candidate.id}.verdict.json", _readable(row.body))

    def _snapshot(self, round: Round, past: CampaignHistory) -> None:
        """Store the kernel as it was best after a round: all files that candidates may change."""
        folder = self.folder.round(round.n) / "kernel_snapshot"
        kernel = self._kernel(past.best_after(round.n))
        for path in folder.rglob("*"):
            if not path.is_dir() and path.relative_to(folder).as_posix() not in kernel:
                path.unlink()
        for name, data in kernel.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            _put(folder / name, data)

    def _kernel(self, commit: str) -> dict[str, bytes]:
        """Return a commit's files that candidates may change, a single one by its name alone."""
        if commit not in self._kernels:
            repo = self.setup.repo
            named = [path for path in repo.files(commit)
                     if globs.matches(path, self.setup.edit)][:SNAPSHOT_FILES]
            self._kernels[commit] = {}
            for path in named:
                with contextlib.suppress(InputError):  # a submodule has no contents here
                    name = Path(path).name if len(named) == 1 else path
                    self._kernels[commit][name] = repo.read(commit, path)
        return self._kernels[commit]


def _readable(body: bytes) -> bytes:
    return msgspec.json.format(body, indent=1)


def _put(path: Path, data: bytes) -> None:
    if not path.is_file() or path.read_bytes() != data:
        path.write_bytes(data)


def _say(path: Path, text: str) -> None:
    """Make a file say `text`; one that says the beginning of it grows, so that it can be followed.
    """
    data = text.encode(errors="replace")
    before = path.read_bytes() if path.exists() else b""
    if not data.startswith(before):
        path.write_bytes(data)
    elif data != before:
        with path.open("ab") as file:
            file.write(data[len(before):])
