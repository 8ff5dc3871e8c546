"""The layout of a campaign's folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.repository import worktree
from harness.errors import EnvironmentFault


@dataclass(frozen=True)
class Folder:
    """A campaign's folder in the workspace."""

    path: Path

    @classmethod
    def create(cls, path: Path) -> Folder:
        """Make the folder and its fixed parts.

        Raises FileExistsError if it exists, EnvironmentFault if it cannot be made.
        """
        folder = cls(path.resolve())
        try:
            folder.path.mkdir(parents=True)
            for part in (folder.logs, folder.profiles, folder.rounds, folder.inbox, folder.trees,
                         folder.patches):
                part.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise
        except OSError as error:
            raise EnvironmentFault(f"the campaign's folder cannot be made: {error.strerror}",
                                   where=str(path), fix="choose another --workspace") from None
        return folder

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.yaml"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def log(self) -> Path:
        return self.logs / "optimize.md"

    @property
    def trend(self) -> Path:
        return self.logs / "performance_trend.md"

    @property
    def performance(self) -> Path:
        return self.path / "performance.md"

    @property
    def results(self) -> Path:
        return self.path / "results.tsv"

    @property
    def report(self) -> Path:
        """The final report as Markdown; `page` is the same report as one HTML file with charts."""
        return self.path / "report.md"

    @property
    def page(self) -> Path:
        return self.path / "report.html"

    @property
    def profiles(self) -> Path:
        return self.path / "profiles"

    @property
    def rounds(self) -> Path:
        return self.path / "rounds"

    @property
    def inbox(self) -> Path:
        return self.path / "inbox"

    @property
    def trees(self) -> Path:
        """Plain checkouts by tree id, for the harness."""
        return self.path / "trees"

    @property
    def patches(self) -> Path:
        return self.path / "patches"

    def remove_parts(self) -> None:
        """Delete checkouts that a killed engine left unfinished."""
        for part in self.trees.glob("*.part"):
            worktree.remove(part)

    def scratch(self, name: str) -> Path:
        """Return a folder for temporary files of one purpose."""
        path = self.path / "scratch" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def fresh_scratch(self, name: str) -> Path:
        """Return such a folder, emptied: files that an earlier candidate left are not trusted."""
        worktree.remove(self.path / "scratch" / name)
        return self.scratch(name)

    def round(self, n: int) -> Path:
        path = self.rounds / f"round-{n}"
        for part in ("kernel_snapshot", "artifacts", "candidates"):
            (path / part).mkdir(parents=True, exist_ok=True)
        return path
