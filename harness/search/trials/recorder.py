"""Where a loop's trials go, and what it knows from there: corpus, own record, results.tsv."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from harness.devices.device import Device
from harness.errors import os_fault
from harness.search.space.knobs import Knob
from harness.search.space.space import Observation, Space
from harness.search.trials import corpus, trial_log, trials_tsv
from harness.search.trials.trial_log import TrialLog
from harness.search.trials.trials import SearchJob, Trial
from harness.settings import Settings
from harness.target import Target
from harness.timing.plan import SCREEN


class Recorder:
    """Records the trials of one loop; use as a context manager.

    The corpus comes first, so that a loop that is killed has measured twice rather than lost one;
    results.tsv last, since it can be made up for. What cannot be written there is told once and
    stops nothing; a loop whose own record cannot be written ends, since it could not go on.
    """

    def __init__(self, target: Target, job: SearchJob, device: Device, knobs: Sequence[Knob],
                 loop: str, on_note: Callable[[str], None]) -> None:
        self.notes: list[str] = []
        self._target, self._device, self._knobs = target, device, knobs
        self._on_note = on_note
        self._corpus = Path(job.corpus) if job.corpus else None
        now = corpus.size(self._corpus) if self._corpus is not None else 0
        self._logbook: TrialLog | None = None
        if job.record:
            try:
                self._logbook = TrialLog(Path(job.record), loop, fresh=job.fresh, corpus_bytes=now)
            except OSError as error:
                raise os_fault(error) from None
            for note in self._logbook.notes:
                self.note(note)
        self._advised_by = self._logbook.corpus_bytes if self._logbook is not None else now
        self._make_up()

    @property
    def earlier(self) -> tuple[Trial, ...]:
        """The trials that were recorded before."""
        return self._logbook.trials if self._logbook is not None else ()

    def history(self, space: Space, kernel: str) -> tuple[Observation, ...]:
        """Return what the corpus knew of this kernel when the loop was first started."""
        if self._corpus is None:
            return ()
        with self._surviving("read", self._corpus):
            reading = corpus.read(self._corpus, op=self._target.op, end=self._advised_by)
            if reading.skipped:
                self.note(f"{reading.skipped} torn line{'s' * (reading.skipped > 1)} left out in "
                          f"{self._corpus}")
            alike = corpus.matching(reading.records, op=self._target.op, kernel=kernel,
                                    language=self._target.language,
                                    names=[knob.name for knob in self._knobs])
            still = {knob.name: knob.value for knob in self._knobs
                     if knob.name not in space.choices}
            return corpus.history(alike, space, still)
        return ()

    def add(self, trial: Trial) -> None:
        """Record a trial. Raises EnvironmentFault when the loop's own record cannot be written."""
        if self._corpus is not None and corpus.worth(trial):
            with self._surviving("write", self._corpus):
                corpus.append(self._corpus, corpus.record(trial, self._target, self._device,
                                                          self._knobs))
        if self._logbook is not None:
            try:
                self._logbook.add(trial)
            except OSError as error:
                raise os_fault(error) from None
            with self._surviving("write", self._logbook.results):
                trials_tsv.append(self._logbook.results, [self._row(trial)])

    def note(self, text: str) -> None:
        """Tell something once."""
        if text not in self.notes:
            self.notes.append(text)
            self._on_note(text)

    def _make_up(self) -> None:
        """Write the rows that a killed loop did not come to."""
        if self._logbook is not None and self._logbook.trials:
            with self._surviving("write", self._logbook.results):
                there = trials_tsv.experiments(self._logbook.results)
                missing = [self._row(trial) for trial in self._logbook.trials
                           if str(trial.number) not in there]
                if missing:
                    trials_tsv.append(self._logbook.results, missing)

    def _row(self, trial: Trial) -> tuple[str, ...]:
        return trials_tsv.row(trial, model=self._target.op, gpu=self._device.name)

    @contextlib.contextmanager
    def _surviving(self, what: str, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.note(f"cannot {what} {path}: {error.strerror}; the loop goes on without")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._logbook is not None:
            self._logbook.__exit__(kind, error, trace)


def key(target: Target, job: SearchJob, device: Device, settings: Settings) -> str:
    """Return the short name of a loop, by which it is found again."""
    return trial_log.key(target, job, device, settings, SCREEN)
