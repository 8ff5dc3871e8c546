"""What a campaign has kept: its task, its best source and the verdict on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.history.campaign_view import JournalView
from engine.journal.decoded.recorded import verdict_of
from engine.journal.records import Campaign
from engine.records import measured
from engine.repository.clone import Clone
from harness.errors import Refused
from harness.formats import yaml_document
from harness.formats.yaml_decode import decode
from harness.tasks.target import Target
from harness.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class KeptResult:
    """A kernel campaign's best; `verdict` compares it with the baseline.

    It is None if nothing was kept or the best was not measured.
    """

    row: Campaign
    target: Target
    task: str
    """The task file's path in the project."""
    clone: Clone
    verdict: Verdict | None

    @property
    def source(self) -> str:
        """The best's source."""
        return self.read(self.target.source).decode()

    @property
    def folder(self) -> str:
        """The folder of the task's files, in the project."""
        return str(Path(self.task).parent)

    def read(self, path: str) -> bytes:
        return self.clone.read(self.row.best_commit, path)

    def files(self, folder: str) -> list[str]:
        """Return the paths of the best's files in a folder."""
        return [path for path in self.clone.files(self.row.best_commit)
                if path.startswith(f"{folder}/")]


def of(view: JournalView) -> KeptResult:
    """Return a campaign's result. Raises Refused for a target that is not a kernel."""
    row, spec = view.row, view.manifest.target
    if spec.kind != "kernel":
        raise Refused(f"{row.id} is judged by its project's own benchmark; such a result "
                      "cannot be exported", fix="kopt report prints its results")
    clone = Clone(Path(row.path) / "repo.git")
    task = yaml_document.parse(clone.read(row.base_commit, spec.task).decode(), spec.task)
    recorded = measured.of_headline(view.history)
    return KeptResult(
        row=row, target=decode(task, Target), task=spec.task, clone=clone,
        verdict=None if recorded is None or row.best_commit == row.base_commit
        else verdict_of(recorded))


def measured_verdict(result: KeptResult) -> Verdict:
    """Return the verdict on the best. Raises Refused without a kept best or a correct verdict."""
    if result.row.best_commit == result.row.base_commit:
        raise Refused(f"{result.row.id} has kept nothing yet",
                      fix="kopt show lists what it tried")
    if result.verdict is None or not result.verdict.correct:
        raise Refused(f"the best of {result.row.id} is not measured against the baseline",
                      fix="kopt resume measures it")
    return result.verdict
