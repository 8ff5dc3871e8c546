"""Record a loop's trials in the corpus, its own log and results.tsv, and read them back."""

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
    """Records the trials of one loop. Use as a context manager.

    The corpus is written first, so that a killed loop measures a trial twice rather than losing it;
    results.tsv last, since missing rows can be added later. A corpus or results.tsv that cannot be
    written is noted once; a loop whose own log cannot be written ends, since it could not resume.
    """

    def __init__(self, target: Target, job: SearchJob, device: Device, knobs: Sequence[Knob],
                 loop: str, on_note: Callable[[str], None]) -> None:
        self.notes: list[str] = []
        self._target, self._device, self._knobs = target, device, knobs
        self._on_note = on_note
        self._corpus = Path(job.corpus) if job.corpus else None
        now = corpus.size(self._corpus) if self._corpus is not None else 0
        self._log: TrialLog | None = None
        if job.record:
            try:
                self._log = TrialLog(Path(job.record), loop, fresh=job.fresh, corpus_bytes=now)
            except OSError as error:
                raise os_fault(error) from None
            for note in self._log.notes:
                self.note(note)
        self._advised_by = self._log.corpus_bytes if self._log is not None else now
        self._add_missing_rows()

    @property
    def earlier(self) -> tuple[Trial, ...]:
        """The trials of the earlier runs of this loop."""
        return self._log.trials if self._log is not None else ()

    def history(self, space: Space, kernel: str) -> tuple[Observation, ...]:
        """Return the corpus's records of this kernel from when the loop was first started."""
        if self._corpus is None:
            return ()
        with self._surviving("read", self._corpus):
            reading = corpus.read(self._corpus, op=self._target.op, end=self._advised_by)
            if reading.skipped:
                self.note(f"{reading.skipped} torn line{'s' * (reading.skipped > 1)} left out in "
                          f"{self._corpus}")
            records = corpus.matching(reading.records, op=self._target.op, kernel=kernel,
                                      language=self._target.language,
                                      names=[knob.name for knob in self._knobs])
            fixed = {knob.name: knob.value for knob in self._knobs
                     if knob.name not in space.choices}
            return corpus.history(records, space, fixed)
        return ()

    def add(self, trial: Trial) -> None:
        """Record a trial. Raises EnvironmentFault when the loop's own log cannot be written."""
        if self._corpus is not None and corpus.is_worth_recording(trial):
            with self._surviving("write", self._corpus):
                corpus.append(self._corpus, corpus.record_of(trial, self._target, self._device,
                                                             self._knobs))
        if self._log is not None:
            try:
                self._log.add(trial)
            except OSError as error:
                raise os_fault(error) from None
            with self._surviving("write", self._log.results):
                trials_tsv.append(self._log.results, [self._row(trial)])

    def note(self, text: str) -> None:
        """Report a note once."""
        if text not in self.notes:
            self.notes.append(text)
            self._on_note(text)

    def _add_missing_rows(self) -> None:
        """Write the rows that a killed loop did not write."""
        if self._log is not None and self._log.trials:
            with self._surviving("write", self._log.results):
                present = trials_tsv.experiments(self._log.results)
                missing = [self._row(trial) for trial in self._log.trials
                           if str(trial.number) not in present]
                if missing:
                    trials_tsv.append(self._log.results, missing)

    def _row(self, trial: Trial) -> tuple[str, ...]:
        return trials_tsv.row(trial, model=self._target.op, gpu=self._device.name)

    @contextlib.contextmanager
    def _surviving(self, what: str, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.note(f"cannot {what} {path}: {error.strerror}; the loop continues without it")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._log is not None:
            self._log.__exit__(kind, error, trace)


def key(target: Target, job: SearchJob, device: Device, settings: Settings) -> str:
    """Return the short name by which a loop's record is found again."""
    return trial_log.key(target, job, device, settings, SCREEN)
