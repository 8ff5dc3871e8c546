"""The raw outputs of a candidate's verdicts, its worker's log and transcript, as files by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from engine.campaign import artifacts
from engine.campaign.artifacts import Artifacts
from engine.campaign.folder import Folder
from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate
from engine.workers.protocol import LOG
from engine.workers.transcript import LIMIT_BYTES, TranscriptEntry, TranscriptReader
from harness.errors import InputError
from harness.formats.quantities import counted
from harness.formats.text import suggest
from harness.isolation.raw_outputs import RUNS
from kopt_tui.cli.output import print_bytes, print_facts, print_json, print_table
from kopt_tui.snapshot.candidate_view import attempt_of

SHOWN_RUNS = 40
"""Processes of one verdict that are listed, at most; those that failed come first."""
FAILED = "failed-"
"""Names of files about failed rows and checks begin with a number, then this."""
OK = ("exited with 0", "was stopped")
"""How a process ended if it did not fail; kopt itself stops those that serve requests."""


class VerdictOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """One archive and its files; there are none if it was deleted to make room."""

    stored: Artifacts
    files: Mapping[str, bytes]

    @property
    def runs(self) -> list[list[str]]:
        """The processes: number, name, how it ended, seconds, command."""
        lines = self.files.get(RUNS, b"").decode(errors="replace").splitlines()
        return [line.split("\t") for line in lines if line.count("\t") == 4]


class ListedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of an archive: kopt logs --file NAME prints it."""

    name: str
    bytes: int


class ListedArchive(msgspec.Struct, frozen=True, kw_only=True):
    """The outputs of one verdict: its archive, processes and files; none if it was `removed`."""

    archive: Artifacts
    removed: bool
    runs: tuple[tuple[str, ...], ...]
    """Of each process: number, name, how it ended, seconds, command."""
    files: tuple[ListedFile, ...]


class ListedOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a candidate, or of the baseline; the path of a missing file is ""."""

    candidate: str
    campaign: str
    worker_log: str
    transcript: str
    outputs: tuple[ListedArchive, ...]


class CandidateOutputs:
    """What is kept of one candidate, or of a verdict on something else, such as the baseline."""

    def __init__(self, reader: Reader, campaign: Campaign, name: str,
                 candidate: Candidate | None) -> None:
        self.name, self.campaign = name, campaign.id
        folder = Path(campaign.path)
        removed = artifacts.removed_paths(reader, campaign.id)
        self.verdicts = [
            VerdictOutputs(stored=outputs, files={} if outputs.path in removed
                           else artifacts.read(folder, outputs))
            for outputs in artifacts.of_campaign(reader, campaign.id, removed=True)
            if outputs.candidate == name]
        kept = [] if candidate is None else _attempt_files(reader, Folder(folder), candidate)
        self.worker_log = next((path for path in kept if path.suffix == ".log"), None)
        self.transcript = next((path for path in kept if path.suffix != ".log"), None)

    @property
    def _worker_files(self) -> list[Path]:
        return [path for path in (self.worker_log, self.transcript) if path is not None]

    def file(self, name: str) -> bytes:
        """Return the content of the newest file of this name. Raises InputError."""
        if self.transcript is not None and name == self.transcript.name:
            return "\n".join(map(_printed, TranscriptReader(self.transcript).read(
                2 * LIMIT_BYTES))).encode()
        if self.worker_log is not None and name in (LOG, self.worker_log.name):
            return self.worker_log.read_bytes()
        for verdict in reversed(self.verdicts):
            for known, data in verdict.files.items():
                if name in (known, f"{verdict.stored.purpose}/{known}"):
                    return data
        names = [known for verdict in self.verdicts for known in verdict.files]
        raise InputError(f"{self.name[:12]} has no output {name!r}",
                         fix=suggest(name, [*names, *(path.name for path in self._worker_files)]))

    def print(self, lines: int) -> None:
        """Print each verdict's processes and files, and the last `lines` of files on failures."""
        if not self.verdicts and not self._worker_files:
            raise InputError(f"no outputs of {self.name[:12]} are kept", where=self.campaign,
                             fix="they are stored when its verdict ends")
        print_facts([("outputs of", self.name), ("campaign", self.campaign),
                     ("worker's log", str(self.worker_log or "")),
                     ("transcript", str(self.transcript or ""))])
        for verdict in self.verdicts:
            self._print_verdict(verdict, lines)
        print(f"\nkopt logs {self.name[:12]} --file NAME prints a whole file")

    def print_json(self) -> None:
        """Print the lists of processes and files as JSON."""
        print_json(ListedOutputs(
            candidate=self.name, campaign=self.campaign, worker_log=str(self.worker_log or ""),
            transcript=str(self.transcript or ""),
            outputs=tuple(ListedArchive(
                archive=verdict.stored, removed=not verdict.files,
                runs=tuple(map(tuple, verdict.runs)),
                files=tuple(ListedFile(name=name, bytes=len(data))
                            for name, data in verdict.files.items()))
                for verdict in self.verdicts)))

    def _print_verdict(self, verdict: VerdictOutputs, lines: int) -> None:
        stored = verdict.stored
        removed = "" if verdict.files else "; deleted to make room"
        print(f"\n{stored.purpose}, round {stored.round}, on {stored.device}: "
              f"{counted(stored.files, 'file')}, {stored.bytes / 1024:.1f} KiB in {stored.path}"
              f"{removed}")
        runs = sorted(verdict.runs, key=lambda cells: cells[2] in OK)
        print_table(("run", "process", "ended", "seconds", "command"),
                    sorted(runs[:SHOWN_RUNS]), right="seconds")
        if len(runs) > SHOWN_RUNS:
            print(f"and {len(runs) - SHOWN_RUNS} more, all in {RUNS}")
        print_table(("file", "bytes"), [(name, len(data)) for name, data
                                        in verdict.files.items()], right="bytes")
        for name in _failure_files(verdict.files, runs):
            print(f"\n{name}")
            shown = verdict.files[name].splitlines()
            shown = shown[-lines:] if lines else shown
            table = [row.decode(errors="replace").split("\t") for row in shown]
            if name.endswith(".tsv") and len({len(row) for row in table}) == 1:
                print_table(table[0], table[1:])
            else:
                print_bytes(b"\n".join(shown) + b"\n")


def _attempt_files(reader: Reader, folder: Folder, candidate: Candidate) -> list[Path]:
    """Return the log and transcript of the attempt that a candidate, or its original, came from."""
    made = attempt_of(reader, candidate)
    key = (made.round, made.slot, made.number)
    earlier = [folder.of_slot(made.round, made.slot) / LOG]  # from before attempts had numbers
    return [path for path in (folder.worker_log(*key), folder.transcript(*key),
                              *(() if made.number else earlier)) if path.is_file()]


def _printed(entry: TranscriptEntry) -> str:
    """Return a transcript's entry as text."""
    cost = "" if entry.cost_usd is None else f", ${entry.cost_usd:.4f} so far"
    code = "" if entry.exit_code is None else f", exit code {entry.exit_code}"
    command = f"$ {entry.command}\n" if entry.command else ""
    return f"--- step {entry.step}, {entry.role}{code}{cost}\n{command}{entry.text}"


def _failure_files(files: Mapping[str, bytes], runs: Sequence[Sequence[str]]) -> list[str]:
    """Return the files about failed rows and checks, and those of the last process that failed."""
    failed = [cells[0] for cells in runs if cells[2] not in OK][-1:]
    return [name for name in files if name.partition("-")[2].startswith(FAILED)
            or name.partition("-")[0] in failed]
