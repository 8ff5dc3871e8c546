"""Writes a campaign's files for people from its journal; no program reads them back."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Sequence
from itertools import zip_longest
from pathlib import Path

import msgspec

from engine import globs
from engine.campaign import artifacts
from engine.campaign.artifacts import Artifacts
from engine.campaign.setup import Setup
from engine.history import campaign_view, kernel_splits
from engine.history.campaign_view import JournalView
from engine.history.history import CampaignHistory
from engine.history.waiting_line import ON_LINE
from engine.journal.judged_rows import DecisionRow, VerdictRow
from engine.journal.read import Reader
from engine.journal.records import Candidate, Round
from engine.journal.write import Writer
from engine.judge.candidate import JudgedCandidate
from engine.manifest.schema import publishes_commits
from engine.markdown import table
from engine.records import optimize_log, performance, results_tsv, round_summary
from engine.records.report.campaign_report import html, markdown
from engine.repository.clone import RECORDS
from engine.task import Task
from engine.workers.protocol import LOG
from harness.errors import InputError
from harness.search.trials import trials_tsv
from harness.search.trials.trials import Trial

SETTLING = 2
"""Newest rounds whose summaries may still change: a summary names the next round's directions."""
SNAPSHOT_FILES = 64
"""Limit of the files in a kernel snapshot; a glob may match a whole project."""


class Records:
    """Writes one campaign's files; each method may be called again for the same round."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.folder = setup.folder
        self._kernels: dict[str, dict[str, bytes]] = {}
        """Each commit's files, read once."""
        self._settled = 0
        """Rounds up to this one are written and do not change any more."""

    def start(self) -> None:
        """Create the file to which trials are appended."""
        if not self.folder.results.exists():
            self.folder.results.write_text(trials_tsv.HEAD)

    def trials(self, round: int, task: Task, trials: Sequence[Trial],
               writer: Writer) -> None:
        """Append a search's trials to results.tsv and to the journal."""
        rows = results_tsv.of_trials(trials, round=round, slot=task.slot,
                                     model=self.setup.target.op, gpu=self.setup.device.name)
        writer.add_trials(self.setup.id, round, task.slot, trials)
        trials_tsv.append(self.folder.results, rows)

    def verdict(self, round: int, judged: JudgedCandidate) -> None:
        """Store a verdict in its candidate's folder."""
        folder = self._folder_of(round, judged.entry.candidate.slot)
        _write(folder / f"{judged.entry.id}.verdict.json",
               _indented(msgspec.json.encode(judged.verdict)))

    def worker_log(self, round: int, task: Task) -> None:
        """Move the log of an attempt's worker into the folder of its slot."""
        path = self.folder.path / "scratch" / task.slot / LOG
        if path.is_file() and not path.is_symlink():
            self._folder_of(round, task.slot)
            shutil.move(path, self.folder.worker_log(round, task.slot, task.attempt))

    def rewrite(self) -> None:
        """Make the next `write_all` rewrite old rounds too, after a person's decision."""
        self._settled = 0

    def write_all(self, reader: Reader) -> None:
        """Rewrite all files from the journal; the same journal gives the same bytes.

        Runs after every keep, round and stop, and when an engine takes over from another. Old
        rounds are rewritten by the first call, and by the next one after `rewrite`.
        """
        view = self._with_splits(campaign_view.read(reader, self.setup.id, self.setup.manifest))
        _grow(self.folder.performance, performance.page(view))
        _grow(self.folder.trend, performance.trend(view))
        _grow(self.folder.log, optimize_log.page(view))
        _grow(self.folder.results, results_tsv.page(
            reader, self.setup.id, model=self.setup.target.op, gpu=view.row.device))
        ended = [round for round in view.history.rounds if round.ended_at is not None]
        for round in ended:
            if round.n > self._settled:
                self._snapshot(round, view.history)
                _grow(self.folder.round(round.n) / "summary.md", round_summary.page(view, round))
        self._candidates(view.history)
        self._artifacts(reader, view.history)
        self._settled = max([0, *(round.n for round in ended[:-SETTLING])])
        if view.stops:
            _grow(self.folder.report, markdown(view))
            _grow(self.folder.page, html(view))

    def of_keep(self, reader: Reader, candidate: Candidate, tree: str, *, reason: str,
                verdict: int | None) -> dict[str, bytes]:
        """Return the records that a commit of a candidate's tree has beside its code, by path.

        There are none if the manifest says that nothing is committed in the project.
        """
        if not publishes_commits(self.setup.manifest):
            return {}
        view = with_keep(
            campaign_view.read(reader, self.setup.id, self.setup.manifest), candidate,
            reason=reason, verdict=verdict)
        row = view.history.verdicts.get(verdict or 0)
        self._kernels[PENDING] = self._kernel(tree)
        return keep_files(self._with_splits(view), candidate,
                          _indented(row.body) if row else b"")

    def _with_splits(self, view: JournalView) -> JournalView:
        return msgspec.structs.replace(view, splits=kernel_splits.of(view.history, self._kernel))

    def _folder_of(self, round: int, slot: str) -> Path:
        folder = self.folder.of_slot(round, slot)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _candidates(self, past: CampaignHistory) -> None:
        """Store each candidate's newest verdict and, unless it was pruned, its patch."""
        newest: dict[str, VerdictRow] = {row.candidate: row for row in past.verdicts.values()}
        for candidate in past.candidates.values():
            if candidate.round <= self._settled:
                continue
            patch = self.folder.path / candidate.patch_path
            candidate_folder = self._folder_of(candidate.round, candidate.slot)
            if patch.is_file():
                _write(candidate_folder / f"{candidate.id}.patch", patch.read_bytes())
            if row := newest.get(candidate.id):
                _write(candidate_folder / f"{candidate.id}.verdict.json", _indented(row.body))

    def _artifacts(self, reader: Reader, past: CampaignHistory) -> None:
        """Store the index of each round's raw outputs."""
        by_round: dict[int, list[Artifacts]] = {}
        for outputs in artifacts.of_campaign(reader, self.setup.id, removed=True):
            by_round.setdefault(outputs.round, []).append(outputs)
        removed = artifacts.removed_paths(reader, self.setup.id)
        for n, stored in by_round.items():
            _grow(self.folder.round(n) / "artifacts" / "index.md",
                  _artifact_index(stored, removed, past))

    def _snapshot(self, round: Round, past: CampaignHistory) -> None:
        """Store the best kernel after a round: all files that candidates may change."""
        folder = self.folder.round(round.n) / "kernel_snapshot"
        kernel = self._kernel(past.best_after(round.n))
        for path in folder.rglob("*"):
            if not path.is_dir() and path.relative_to(folder).as_posix() not in kernel:
                path.unlink()
        for name, data in kernel.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            _write(folder / name, data)

    def _kernel(self, commit: str) -> dict[str, bytes]:
        """Return a commit's files that candidates may change; a single one by its bare name."""
        if commit not in self._kernels:
            repo = self.setup.repo
            named = [path for path in repo.files(commit)
                     if globs.matches(path, self.setup.edit)][:SNAPSHOT_FILES]
            self._kernels[commit] = {}
            for path in named:
                with contextlib.suppress(InputError):  # a submodule has no contents
                    name = Path(path).name if len(named) == 1 else path
                    self._kernels[commit][name] = repo.read(commit, path)
        return self._kernels[commit]


def _indented(body: bytes) -> bytes:
    return msgspec.json.format(body, indent=1)


def _write(path: Path, data: bytes) -> None:
    if not path.is_file() or path.read_bytes() != data:
        path.write_bytes(data)


def _grow(path: Path, text: str) -> None:
    """Write a file's text from the first difference on, so that `tail -f` works."""
    data = text.encode(errors="replace")
    before = path.read_bytes() if path.exists() else b""
    if data == before:
        return
    shared = len(before) if data.startswith(before) else next(
        n for n, (old, new) in enumerate(zip_longest(before, data)) if old != new)
    with path.open("r+b" if before else "wb") as file:
        file.seek(shared)
        file.write(data[shared:])
        file.truncate()


ARTIFACTS = ("archive", "of", "purpose", "slot", "state", "device", "files", "size",
             "kernel profile")


def _artifact_index(stored: Sequence[Artifacts], removed: Collection[str],
                    past: CampaignHistory) -> str:
    """Return the index of one round's archives; `removed` are the paths of deleted ones."""
    rows = [_artifact_row(outputs, outputs.path in removed, past) for outputs in stored]
    return (f"# Raw outputs of round {stored[0].round}\n\n"
            "What the processes of each verdict printed and wrote, archived unchanged. The texts "
            f"are untrusted:\n`kopt logs CANDIDATE` prints them without control characters.\n\n"
            f"{table(ARTIFACTS, rows)}")


def _artifact_row(outputs: Artifacts, is_removed: bool, past: CampaignHistory) -> tuple[str, ...]:
    candidate = past.candidates.get(outputs.candidate)
    name = outputs.path.rpartition("/")[2]
    return (f"{name} (deleted to make room)" if is_removed else name, outputs.candidate[:12],
            outputs.purpose, candidate.slot if candidate else "", candidate.state if candidate
            else "", outputs.device, str(outputs.files), f"{outputs.bytes / 1024:.1f} KiB",
            "" if is_removed else outputs.profile)


PENDING = "this commit"


def with_keep(view: JournalView, candidate: Candidate, *, reason: str,
              verdict: int | None) -> JournalView:
    """Return a campaign's view as if a candidate, and all that it rests on, were kept.

    A commit cannot name itself: its row says PENDING. All times come from the journal, and
    phases after the verdict are left out, so that a keep that is repeated after a kill makes the
    same commit.
    """
    past = view.history
    row = past.verdicts.get(verdict or 0)
    line = {member.id: member.commit for member in past.candidates.values()
            if member.state in ON_LINE and member.commit}
    keep = DecisionRow(
        id=0, campaign=candidate.campaign, candidate=candidate.id, verdict=verdict,
        round=candidate.round, kind="keep", reason=reason, actor="engine", commit=PENDING,
        at=row.at if row else candidate.created_at)
    decisions = [msgspec.structs.replace(decision, kind="keep")
                 if decision.commit and line.get(decision.candidate) == decision.commit
                 else decision for decision in past.decisions]
    candidates = {id: msgspec.structs.replace(other, state="keeping")
                  if id in line or id == candidate.id else other
                  for id, other in past.candidates.items()}
    return msgspec.structs.replace(
        view, phases=tuple(phase for phase in view.phases if phase[0] < keep.at),
        history=msgspec.structs.replace(past, decisions=(*decisions, keep), candidates=candidates))


def keep_files(view: JournalView, candidate: Candidate, verdict: bytes) -> dict[str, bytes]:
    """Return the records that a commit has beside its code, by path; `verdict` is its JSON."""
    folder = f"{RECORDS}/{view.campaign}"
    pages = {"performance.md": performance.page(view), "logs/optimize.md": optimize_log.page(view)}
    return {**{f"{folder}/{name}": text.encode(errors="replace") for name, text in pages.items()},
            f"{folder}/verdicts/{candidate.id}.json": verdict}
