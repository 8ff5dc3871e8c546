"""The layout of a campaign's folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

from engine.repository import worktree
from harness.errors import EnvironmentFault

_ATTEMPT_FILE = re.compile(r"(?:transcript-(\d+)\.jsonl|worker-(\d+)\.log)")


class Folder:
    """A campaign's folder in the workspace."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = path / "manifest.yaml"
        self.logs = path / "logs"
        self.log = self.logs / "optimize.md"
        self.trend = self.logs / "performance_trend.md"
        self.performance = path / "performance.md"
        self.results = path / "results.tsv"
        self.report = path / "report.md"
        self.page = path / "report.html"
        """The same report as one HTML file with charts."""
        self.profiles = path / "profiles"
        self.rounds = path / "rounds"
        self.inbox = path / "inbox"
        self.trees = path / "trees"
        """Plain checkouts by tree id, for the harness."""
        self.patches = path / "patches"

    @classmethod
    def create(cls, path: Path) -> Folder:
        """Make the folder and its parts. Raises FileExistsError, EnvironmentFault."""
        folder = cls(path.resolve())
        try:
            folder.path.mkdir(parents=True)
            for part in (folder.logs, folder.profiles, folder.rounds, folder.inbox, folder.trees,
                         folder.patches):
                part.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if isinstance(error, FileExistsError):
                raise
            raise EnvironmentFault(f"the campaign's folder cannot be made: {error.strerror}",
                                   where=str(path), fix="choose another --workspace") from None
        return folder

    def remove_unfinished_trees(self) -> None:
        """Delete checkouts that a killed engine left unfinished."""
        for part in self.trees.glob("*.part"):
            worktree.remove(part)

    def scratch(self, name: str) -> Path:
        """Return a folder for temporary files of one purpose."""
        path = self.path / "scratch" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def searches(self, slot: str) -> Path:
        """Return the folder of a slot's unfinished searches, which the next engine continues."""
        return self.path / "scratch" / "searches" / slot

    def fresh_scratch(self, name: str) -> Path:
        """Return an empty `scratch` folder: files of an earlier candidate are not trusted."""
        worktree.remove(self.path / "scratch" / name)
        return self.scratch(name)

    def round(self, n: int) -> Path:
        path = self.rounds / f"round-{n}"
        for part in ("kernel_snapshot", "artifacts", "candidates"):
            (path / part).mkdir(parents=True, exist_ok=True)
        return path

    def of_slot(self, round: int, slot: str) -> Path:
        """Return the folder of one slot's files in a round; it may not exist yet."""
        return self.rounds / f"round-{round}" / "candidates" / slot

    def transcript(self, round: int, slot: str, attempt: int) -> Path:
        """Return the file of an attempt's transcript, which grows while the agent works."""
        return self.of_slot(round, slot) / f"transcript-{attempt}.jsonl"

    def worker_log(self, round: int, slot: str, attempt: int) -> Path:
        """Return the file with what an attempt's worker printed, written when it has ended."""
        return self.of_slot(round, slot) / f"worker-{attempt}.log"

    def last_attempt(self, round: int, slot: str) -> int:
        """Return the highest number of a slot's attempts that left a file, 0 if there is none."""
        folder = self.of_slot(round, slot)
        attempts = map(_ATTEMPT_FILE.fullmatch, os.listdir(folder)) if folder.is_dir() else ()
        return max((int(match[1] or match[2]) for match in attempts if match), default=0)
