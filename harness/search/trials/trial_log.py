"""Record a loop's trials in the corpus, its own log and results.tsv; a killed loop resumes.

The log's folder holds `trials.jsonl` (a head, then trials), `results.tsv` and a lock. Lines are
only appended; each is on disk before the next trial.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from harness.devices.device import Device
from harness.errors import InputError, Refused
from harness.formats import jsonl
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.formats.quantities import counted
from harness.search.space.knobs import Knob
from harness.search.space.tunable_source import Observation, Space
from harness.search.trials import corpus, trials_tsv
from harness.search.trials.trials import SearchJob, Trial
from harness.settings import Settings
from harness.tasks.target import Target
from harness.timing.plan import SCREEN
from harness.verdict import HARNESS_VERSION

TRIALS, RESULTS, LOCK = "trials.jsonl", "results.tsv", "lock"
LET_GO_S = 3.0
"""Seconds to wait for a killed loop's children to release the lock."""


@dataclass(frozen=True, kw_only=True)
class TrialLogHead:
    """The first line: the loop's name, and how much of the corpus advised it."""

    TAG = "loop"
    loop: str
    corpus_bytes: int = 0


def key(target: Searched, job: SearchJob, device: Device, settings: Settings) -> str:
    """Return a loop's name: a hash of what decides its trials; the budget is not part of it."""
    identity = [HARNESS_VERSION, target.content_hash, settings.incumbent_tree, device.uuid,
                device.name, job.seed, sorted(job.only), settings.python,
                sorted(settings.env.items()), settings.wall_s,
                settings.predict or False,  # False, not "": earlier logs must keep their names
                repr(SCREEN)]
    return hashlib.sha256(to_json(identity)).hexdigest()[:12]


class Searched(Protocol):
    """A target whose knobs a loop searches; only a kernel's trials go to the corpus."""

    @property
    def op(self) -> str: ...
    @property
    def language(self) -> str: ...
    @property
    def content_hash(self) -> str: ...


class Recorder:
    """Records the trials of one loop. Use as a context manager; its log is locked until then.

    The corpus is written first: a killed loop measures a trial twice rather than losing it. If the
    corpus or results.tsv cannot be written, a note says so once; if the loop's own log cannot be
    written, the loop ends with OSError. Raises Refused if another process holds the lock,
    InputError for the log of another loop.
    """

    def __init__(self, target: Searched, job: SearchJob, device: Device, knobs: Sequence[Knob],
                 loop: str, on_note: Callable[[str], None]) -> None:
        self.notes: list[str] = []
        self.earlier: tuple[Trial, ...] = ()
        """The trials of the earlier runs of this loop."""
        self._target, self._device, self._knobs = target, device, knobs
        self._on_note = on_note
        self._corpus = Path(job.corpus) if job.corpus else None
        self.advised_by = corpus.size(self._corpus) if self._corpus is not None else 0
        """How many bytes of the corpus advise the loop: those from before its first run."""
        self._folder = Path(job.record) if job.record else None
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self._folder)
            try:
                if job.fresh:
                    _move_away(self._folder)
                self._open(self._folder, loop)
            except BaseException:
                os.close(self._lock)
                raise

    def _open(self, folder: Path, loop: str) -> None:
        """Read the log, begin a new one, and add the rows that a killed loop did not write."""
        head, self.earlier, torn = _read(folder / TRIALS)
        if head is not None and head.loop != loop:
            raise InputError("these are the trials of another loop", where=str(folder),
                             fix="--fresh moves them away")
        if torn:
            self.note(_torn_lines_note(torn, folder / TRIALS))
        if head is None:
            head = TrialLogHead(loop=loop, corpus_bytes=self.advised_by)
            _write(folder, head)
        self.advised_by = head.corpus_bytes
        with self._noting_errors("write", folder / RESULTS):
            present = trials_tsv.experiments(folder / RESULTS)
            missing = [self._row(trial) for trial in self.earlier
                       if str(trial.number) not in present]
            if missing:
                trials_tsv.append(folder / RESULTS, missing)

    def history(self, space: Space, kernel: str) -> tuple[Observation, ...]:
        """Return the records of this or similar kernels from before this loop's first run."""
        if self._corpus is None:
            return ()
        with self._noting_errors("read", self._corpus):
            reading = corpus.read(self._corpus, op=self._target.op, end=self.advised_by)
            if reading.skipped:
                self.note(_torn_lines_note(reading.skipped, self._corpus))
            records = corpus.matching(reading.records, op=self._target.op, kernel=kernel,
                                      language=self._target.language,
                                      names=[knob.name for knob in self._knobs])
            fixed = {knob.name: knob.value for knob in self._knobs
                     if knob.name not in space.choices}
            return corpus.history(records, space, fixed)
        return ()

    def add(self, trial: Trial) -> None:
        """Record a trial. Raises OSError when the loop's own log cannot be written."""
        if self._corpus is not None and isinstance(self._target, Target) \
                and corpus.is_worth_recording(trial):
            with self._noting_errors("write", self._corpus):
                corpus.append(self._corpus, corpus.record_of(trial, self._target, self._device,
                                                             self._knobs))
        if self._folder is not None:
            _write(self._folder, trial)
            with self._noting_errors("write", self._folder / RESULTS):
                trials_tsv.append(self._folder / RESULTS, [self._row(trial)])

    def note(self, text: str) -> None:
        """Report a note once."""
        if text not in self.notes:
            self.notes.append(text)
            self._on_note(text)

    def _row(self, trial: Trial) -> tuple[str, ...]:
        return trials_tsv.row(trial, model=self._target.op, gpu=self._device.name)

    @contextlib.contextmanager
    def _noting_errors(self, what: str, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.note(f"cannot {what} {path}: {error.strerror}; the loop continues without it")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            os.close(self._lock)


def _write(folder: Path, line: Trial | TrialLogHead) -> None:
    """Write a line to disk."""
    jsonl.append(folder / TRIALS, to_json(line) + b"\n", sync=True)


def _move_away(folder: Path) -> None:
    number = 1
    while (away := folder / f"earlier-{number}").exists():
        number += 1
    for name in (TRIALS, RESULTS):
        if (path := folder / name).exists():
            away.mkdir(exist_ok=True)
            path.replace(away / name)


def recorded(folder: Path) -> tuple[Trial, ...]:
    """Return the trials of a log, also while a loop runs. Raises OSError."""
    return _read(folder / TRIALS)[1]


def _read(path: Path) -> tuple[TrialLogHead | None, tuple[Trial, ...], int]:
    """Return a log's head and trials, and its number of invalid lines."""
    head: TrialLogHead | None = None
    trials: list[Trial] = []
    torn = 0
    for line in jsonl.read(path):
        try:
            if head is None:
                head = from_json(line, TrialLogHead)
            else:
                trials.append(from_json(line, Trial))
        except ConvertError:
            torn += bool(line)
    return head, tuple(trials), torn


def _torn_lines_note(count: int, path: Path) -> str:
    return f"{counted(count, 'torn line')} left out in {path}"


def _lock(folder: Path) -> int:
    """Lock the folder and return the lock's descriptor. Raises Refused if another has it."""
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if not jsonl.lock(fd, LET_GO_S):
        os.close(fd)
        raise Refused("another loop is running with these trials", where=str(folder),
                      fix="wait for it, or search with another --seed")
    return fd
