"""A loop's own log: its trials, one JSON line each, from which a killed loop resumes.

The folder holds `trials.jsonl` (a head that names the loop, then trials), `results.tsv` and the
lock of the running loop. Lines are only appended; each is on disk before the next trial.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from harness.devices.device import Device
from harness.errors import InputError, Refused
from harness.formats import jsonl
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.search.trials.trials import SearchJob, Trial
from harness.settings import Settings
from harness.target import Target
from harness.timing.plan import Plan
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


def key(target: Target, job: SearchJob, device: Device, settings: Settings, screen: Plan) -> str:
    """Return the short name of a loop, from everything that decides what it tries and measures.

    The budget is not part of it: with a larger one a loop resumes.
    """
    identity = [HARNESS_VERSION, target.content_hash, settings.incumbent_tree, device.uuid,
                device.name, job.seed, sorted(job.only), settings.python,
                sorted(settings.env.items()), settings.wall_s,
                False,  # a setting that is gone: logs from before it went are still found
                repr(screen)]
    return hashlib.sha256(to_json(identity)).hexdigest()[:12]


class TrialLog:
    """The log of one loop, locked by one process at a time. Use as a context manager.

    Raises Refused while another loop holds it, and InputError for the log of another loop.
    """

    def __init__(self, folder: Path, loop: str, *, fresh: bool = False,
                 corpus_bytes: int = 0) -> None:
        self.folder, self.notes = folder, list[str]()
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder)
        try:
            if fresh:
                self._move_away()
            self.head, self.trials, torn = _read(folder / TRIALS)
            if self.head is not None and self.head.loop != loop:
                raise InputError("these are the trials of another loop", where=str(folder),
                                 fix="--fresh moves them away")
            if torn:
                self.notes.append(f"{torn} torn line{'s' * (torn > 1)} left out in "
                                  f"{folder / TRIALS}")
            if self.head is None:
                self.head = TrialLogHead(loop=loop, corpus_bytes=corpus_bytes)
                self._append(to_json(self.head))
        except BaseException:
            os.close(self._lock)
            raise

    @property
    def results(self) -> Path:
        return self.folder / RESULTS

    @property
    def corpus_bytes(self) -> int:
        return self.head.corpus_bytes if self.head is not None else 0

    def add(self, trial: Trial) -> None:
        """Write a trial to disk. Raises OSError."""
        self._append(to_json(trial))

    def __enter__(self) -> TrialLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        os.close(self._lock)

    def _append(self, line: bytes) -> None:
        jsonl.append(self.folder / TRIALS, line + b"\n", sync=True)

    def _move_away(self) -> None:
        number = 1
        while (away := self.folder / f"earlier-{number}").exists():
            number += 1
        for name in (TRIALS, RESULTS):
            if (path := self.folder / name).exists():
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


def _lock(folder: Path) -> int:
    """Lock the folder and return the lock's descriptor. Raises Refused if another has it."""
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    until = time.monotonic() + LET_GO_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(fd)
                raise Refused("another loop is running with these trials", where=str(folder),
                              fix="wait for it, or search with another --seed") from None
        time.sleep(0.02)
