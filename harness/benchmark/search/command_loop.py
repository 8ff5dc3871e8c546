"""Search the knobs of a command target's source; whole benchmark runs are the trials.

Each trial is one run of the default, which is the tree as it is, and one of a copy with the knobs
set, built anew. At the end the configurations that may be best in some config class run again,
paired with the best of the whole table. Those that a quick command confirms run by the full one:
there a class has more rows, which may prefer another configuration.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness.benchmark.runs.command_session import BenchmarkSession, Progress
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.run_pairs import BrokenIncumbent
from harness.benchmark.search import finals
from harness.benchmark.search.knob_runs import KnobRuns, TrialResult
from harness.benchmark.search.round_robin import RoundRobin
from harness.benchmark.spec.command_target import CommandTarget
from harness.devices.device import Device
from harness.errors import Cancelled, DeviceFault, InputError
from harness.search.space.tunable_source import TunableSource
from harness.search.strategy.ask_tell import AskTell, Strategy
from harness.search.strategy.incumbent import Incumbent
from harness.search.trials.trials import TAGS, Contender, LoopResult, SearchJob, Trial
from harness.settings import Settings
from harness.trial_fields import Config

MARGIN = 0.01
"""Gain over the best trial so far from which a trial becomes the best."""
LEAST_REPEATS = 3
SEARCHED_CLASSES = 8
"""Classes that have proposals of their own: those that cost most of the time."""


def sweep(target: CommandTarget, job: SearchJob, device: Device, settings: Settings, *,
          repeats: int = 0, on_trial: Callable[[Trial], None] | None = None,
          progress: Progress | None = None, cancel: threading.Event | None = None) -> LoopResult:
    """Search the knobs of `target.source` in `job.tree`; if cancelled, return the trials so far.

    With `repeats` the possible winners of each class run that many times more. Raises InputError if
    the source has no knobs or the benchmark fails with the default.
    """
    job.check()
    if repeats and repeats < LEAST_REPEATS:
        raise InputError(f"a comparison needs {LEAST_REPEATS} runs or more")
    if not target.source:
        raise InputError("no source is named whose knobs can be searched", where="kernel_source")
    if (Path(job.tree) / target.source).is_symlink():
        raise InputError("is a link: a copy would be written through it", where=target.source)
    source = TunableSource.read(Path(job.tree), target.source, language=target.language)
    loop = CommandLoop(source, job, target.op, settings.incumbent_tree, cancel)
    contenders: tuple[Contender, ...] = ()
    with BenchmarkSession(target, device, settings, progress, cancel) as session:
        with contextlib.suppress(Cancelled), session.watched():
            session.check_confinement(job.reference or job.tree)
            loop.runs = KnobRuns(session, source, job.tree)
            try:
                loop.try_all(on_trial or (lambda trial: None))
                contenders = loop.contenders(repeats)
            except (BrokenIncumbent, BenchmarkFault, DeviceFault) as ended:
                if loop.incumbent.best is None:
                    raise
                session.notes.append(f"ended after {len(loop.trials)} trials: {ended.what}")
        if voided := session.clean_runs.voided:
            session.notes.append(f"{sum(voided.values())} runs were disturbed and repeated: "
                                 f"{'; '.join(sorted(voided))}")
        return loop.result(tuple(session.notes), contenders)


class CommandLoop:
    """The trials of one search, and which of them is the best."""

    def __init__(self, source: TunableSource, job: SearchJob, op: str, incumbent_tree: str,
                 cancel: threading.Event | None) -> None:
        self.source, self.job = source, job
        self.space = source.space(job.only)
        self.incumbent = Incumbent(self.space, MARGIN)
        self.trials: list[Trial] = []
        self.runs: KnobRuns | None = None
        """None until the default is built."""
        self._kernel_id, self._incumbent_tree = source.kernel_id(op), incumbent_tree
        self._cancel = cancel
        self._has_default_failed = False

    def try_all(self, on_trial: Callable[[Trial], None]) -> None:
        """Try configurations until the budget is spent or none is left."""
        assert self.runs is not None
        strategies = RoundRobin(self._strategy)
        proposals = AskTell(strategies, self.space)
        while len(self.trials) < self.job.budget and not self._is_cancelled():
            config = proposals.next()
            if config is None:
                return
            began = time.monotonic()
            result = self._run(self.runs, config)
            trial = self._trial(config, result, time.monotonic() - began)
            if not self.trials:
                strategies.search_classes(
                    tuple(one.name for one in self.runs.classes[:SEARCHED_CLASSES]))
            strategies.tell(config, trial.log_ratio, result.by_class)
            self.trials.append(trial)
            on_trial(trial)

    def contenders(self, repeats: int) -> tuple[Contender, ...]:
        """Return what may beat the best in some class, measured again if `repeats` is set."""
        best, runs = self.incumbent.best, self.runs
        if best is None or runs is None or self._is_cancelled():
            return ()
        names = [one.name for one in runs.classes]
        chosen = finals.choose_contenders(self.trials, best, names)
        if not repeats or not chosen:
            return finals.screened_contenders(chosen, best, names)
        return finals.measured_contenders(runs, self.space.default, best, chosen, repeats)

    def result(self, notes: tuple[str, ...], contenders: tuple[Contender, ...]) -> LoopResult:
        """Return the best configuration and all trials."""
        best = self.incumbent.best
        config = best.config if best is not None else dict(self.space.default)
        return LoopResult(
            best=config, log_ratio=best.log_ratio if best is not None else None,
            source=self.source.apply(config), trials=tuple(self.trials),
            space_size=self.space.size, notes=notes, contenders=contenders,
            columns=self.runs.columns if self.runs else (),
            classes=self.runs.classes if self.runs else ())

    def _run(self, runs: KnobRuns, config: Config) -> TrialResult:
        """Run a configuration; the first is the default. One failure of the default is tolerated.

        Raises BrokenIncumbent for the second, and for a failure of the first run.
        """
        if not self.trials:
            return runs.run_default()
        try:
            return runs.run(config, len(self.trials))
        except BrokenIncumbent as fault:
            if self._has_default_failed:
                raise
            self._has_default_failed = True  # a short fault of the machine loses no earlier trial
            runs.session.notes.append(
                f"the default failed at trial {len(self.trials)}: {fault.what}")
            return TrialResult(correctness="FAIL", reason="the default failed in its pair")

    def _trial(self, config: Config, result: TrialResult, wall_s: float) -> Trial:
        trial = Trial(
            number=len(self.trials), config=config, tag=TAGS[result.correctness],
            correctness=result.correctness, kernel_id=self._kernel_id,
            candidate_id=self.source.candidate_id(self._incumbent_tree, config),
            log_ratio=result.log_ratio, latency_us=result.latency_us,
            latency_kind=None if result.latency_us is None else "reported", reason=result.reason,
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), wall_s=round(wall_s, 4),
            by_class=dict(result.by_class))
        return replace(trial, tag="kept") if self.incumbent.take(trial) else trial

    def _strategy(self) -> Strategy:
        from harness.search.bayesian.bayesian_search import BayesianSearch  # imports numpy

        return BayesianSearch(self.space, self.job.seed, ())

    def _is_cancelled(self) -> bool:
        return self._cancel is not None and self._cancel.is_set()
