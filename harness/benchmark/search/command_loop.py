"""Search the knobs of a command target's source; whole benchmark runs are the trials.

A trial runs the default (the unchanged tree) and a copy with the knobs set. Then possible winners
of a class run again, paired with the best; those that gain by the quick command also run the full
command, in which a class has more rows.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from harness.benchmark.runs import clean_runs, row_keys, run_pairs
from harness.benchmark.runs.command_session import BenchmarkSession, Progress
from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.runs.run_pairs import BrokenIncumbent, RunPair, Series
from harness.benchmark.runs.workdir import WorkingCopy
from harness.benchmark.search import finals
from harness.benchmark.search.configured_runs import ConfiguredRuns
from harness.benchmark.spec.command_target import CommandTarget
from harness.devices.device import Device
from harness.errors import Cancelled, DeviceFault, InputError
from harness.formats.quantities import counted
from harness.search.keep_or_revert import KeepOrRevert, strategy_for
from harness.search.space.tunable_source import TunableSource
from harness.search.strategy import AskTell, RoundRobin
from harness.search.trials import trial_log
from harness.search.trials.trial_log import Recorder
from harness.search.trials.trials import (
    Contender,
    LoopResult,
    Screened,
    SearchJob,
    Trial,
)
from harness.settings import Settings
from harness.verdict import Config

LEAST_REPEATS = 3
SEARCHED_CLASSES = 8
"""Classes that have their own proposals: the most expensive ones."""


def sweep(target: CommandTarget, job: SearchJob, device: Device, settings: Settings, *,
          repeats: int = 0, on_trial: Callable[[Trial], None] | None = None,
          progress: Progress | None = None, cancel: threading.Event | None = None) -> LoopResult:
    """Search the knobs of `target.source` in `job.tree`; if cancelled, return the trials so far.

    With `job.record`, it continues a search that was ended at any moment. With `repeats` the
    possible winners of each class run that many times more. Raises InputError if the source has no
    knobs or the benchmark fails with the default.
    """
    job.check()
    if repeats and repeats < LEAST_REPEATS:
        raise InputError(f"a comparison needs {LEAST_REPEATS} runs or more")
    if not target.source:
        raise InputError("no source is named whose knobs can be searched", where="kernel_source")
    if (Path(job.tree) / target.source).is_symlink():
        raise InputError("is a symbolic link: its target would be overwritten", where=target.source)
    source = TunableSource.read(Path(job.tree), target.source, language=target.language)
    contenders: tuple[Contender, ...] = ()
    name = trial_log.key(target, job, device, settings)
    with Recorder(target, job, device, source.knobs, name,
                  lambda text: progress("note", text, None) if progress else None) as recorder, \
            BenchmarkSession(target, device, settings, progress, cancel) as session:
        loop = CommandLoop(session, source, job, recorder)
        with contextlib.suppress(Cancelled), clean_runs.watch(device) as session.clean_runs:
            session.check_confinement(job.reference or job.tree)
            session.built("incumbent", job.tree)
            try:
                loop.resume()
                loop.search(on_trial or (lambda trial: None))
                contenders = loop.contenders(repeats)
            except (BrokenIncumbent, BenchmarkFault, DeviceFault) as ended:
                if loop.incumbent.best is None:
                    raise
                session.notes.append(f"ended after {len(loop.trials)} trials: {ended.what}")
        if voided := session.clean_runs.voided:
            session.notes.append(f"{sum(voided.values())} runs were disturbed and repeated: "
                                 f"{'; '.join(sorted(voided))}")
        return loop.result((*recorder.notes, *session.notes), contenders=contenders,
                           columns=loop.runs.columns, classes=loop.runs.classes,
                           earlier=len(recorder.earlier))


class CommandLoop(KeepOrRevert):
    """Builds and runs configurations of one source in a tree, each paired with the default."""

    def __init__(self, session: BenchmarkSession, source: TunableSource, job: SearchJob,
                 recorder: Recorder) -> None:
        super().__init__(source, job, session.target.op, session.settings.incumbent_tree,
                         session.environment.cancel)
        self.session, self.target, self.recorder = session, session.target, recorder
        self.runs = ConfiguredRuns(session, source, job.tree)
        self._strategies = RoundRobin(lambda: strategy_for(self.space, job.seed))
        self._proposals = AskTell(self._strategies, self.space, source.starts(job.only))
        self._first: RunPair | None = None
        self._has_default_failed = False

    def contenders(self, repeats: int) -> tuple[Contender, ...]:
        """Return what may beat the best in some class, measured again if `repeats` is set."""
        best = self.incumbent.best
        if best is None or self.is_cancelled():
            return ()
        names = [entry.name for entry in self.runs.classes]
        chosen = finals.choose_contenders(self.trials, best, names)
        if not repeats or not chosen:
            return finals.screened_contenders(chosen, best, names)
        return finals.measured_contenders(self.runs, self.space.default, best, chosen, repeats)

    def resume(self) -> None:
        """Replay the recorded trials; the default runs again, as later trials pair with it."""
        earlier = self.recorder.earlier
        if earlier and len(earlier) < self.job.budget:
            self._run_default()
        self._proposals.replay(earlier, self.is_cancelled, self._take_recorded)
        if earlier:
            done = counted(len(earlier), "recorded trial")
            self.session.progress("note", f"continuing after {done} (--fresh starts again)", None)

    def _take_recorded(self, trial: Trial) -> None:
        self._tell(trial)
        self.incumbent.take(trial)
        self.trials.append(trial)

    def next_config(self) -> Config | None:
        return self._proposals.next()

    def screen(self, config: Config) -> Screened:
        """Run a configuration; the first one is the default.

        Raises BrokenIncumbent if that run fails, or if the default fails in two later pairs.
        """
        if self._first is None:
            return self._run_default()
        try:
            return self._run(config, self._first)
        except BrokenIncumbent as fault:
            if self._has_default_failed:
                raise
            self._has_default_failed = True  # a brief fault of the machine must not lose the trials
            self.session.notes.append(
                f"the default failed at trial {len(self.trials)}: {fault.what}")
            return Screened(correctness="FAIL", reason="the default failed in its pair")

    def learn(self, trial: Trial) -> None:
        self._tell(trial)
        self.recorder.add(trial)

    def _tell(self, trial: Trial) -> None:
        if not self.trials:
            self._strategies.search_classes(
                tuple(entry.name for entry in self.runs.classes[:SEARCHED_CLASSES]))
        self._strategies.tell(trial.config, trial.log_ratio, trial.by_class)

    def _run_default(self) -> Screened:
        """Run the default paired with itself, which shows its rows and the noise."""
        try:
            pair = self._first = self._run_pair(self.session.copies["incumbent"])
            pair.candidate.expect_passed()
        except BenchmarkFault as fault:
            raise BrokenIncumbent(fault) from None
        series = self.runs.match_pairs(
            pair, RunPair(incumbent=pair.candidate, candidate=pair.incumbent))
        run_pairs.expect_weights_apply(self.target, series, self.runs.mode)
        if self.target.weights is not None and series.shares.names_none:
            self.session.notes.append(
                "no row of the quick command is named in the weights: all rows count alike")
        self.runs.learn_classes(series)
        return self._result(series, pair.candidate, 0)

    def _run(self, config: Config, first: RunPair) -> Screened:
        """Run a trial paired with the default. Raises BrokenIncumbent if the default fails."""
        checked = self.source.check(config)
        if checked.refusal:
            return Screened(correctness="REJECTED", reason=checked.refusal)
        try:
            pair = self._run_pair(self.runs.configured_copy("trial", checked.config))
            if pair.candidate.failed:
                return Screened(correctness="FAIL", reason=pair.candidate.failed[0].what)
            row_keys.expect_same_row_count(
                pair.incumbent.table, pair.candidate.table, "the default")
            series = self.runs.match_pairs(first, pair)
        except BenchmarkFault as fault:
            return Screened(correctness="REJECTED" if fault.kind == "build" else "FAIL",
                            reason=str(fault))
        return self._result(series, pair.candidate, 1)

    def _run_pair(self, candidate: WorkingCopy) -> RunPair:
        number = len(self.trials)
        self.session.progress("timing", f"{self.runs.mode.name} benchmark, trial {number}", None)
        self.session.copies["candidate"] = candidate
        return self.session.run_pair(self.runs.mode, number)

    def _result(self, series: Series, reading: TableReading, side_index: int) -> Screened:
        """Return the result of one pair of a series."""
        known = {entry.name for entry in self.runs.classes}
        return Screened(
            correctness="PASS", log_ratio=series.overall[side_index], latency_kind="reported",
            latency_us=run_pairs.table_cost(self.target, self.session.row_cost, series, reading),
            by_class={entry.name: entry.log_ratios[side_index] for entry in series.classes
                      if entry.name in known})
