"""A search over the knobs of a command target's source: whole benchmark runs are its trials.

Each trial is one run of the default, the tree as it is, and one of a copy with the knobs set, built
anew. What may be best in some config class is run again at the end, beside the common best. Who is
then, by the quick command, is run by the full one: a class has more rows, which may want another.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harness.benchmark.runs import clean_runs, row_keys, run_pairs
from harness.benchmark.runs.alternating_runs import ORDER, AlternatingRuns
from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.runs.run_pairs import BrokenIncumbent, RunPair, Series
from harness.benchmark.runs.workdir import WorkingCopy
from harness.benchmark.search import finals
from harness.benchmark.search.round_robin import RoundRobin
from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.verdict.benchmark_verdict import BenchmarkEvaluation, Progress
from harness.benchmark.verdict.confirm_gain import confirm_nothing
from harness.devices.device import Device
from harness.errors import Cancelled, DeviceFault, InputError
from harness.formats import file_copy
from harness.search.space.space import Config
from harness.search.space.tunable_source import TunableSource
from harness.search.strategy.ask_tell import AskTell, Strategy
from harness.search.strategy.incumbent import Incumbent
from harness.search.trials.trials import (
    TAGS,
    ConfigRows,
    Contender,
    Correctness,
    LoopResult,
    SearchJob,
    Trial,
)
from harness.settings import Settings, Trees
from harness.timing.plan import Plan

MARGIN = 0.01
"""Gain of a trial over the best so far from which it is the best."""
LEAST_REPEATS = 3
CARED_FOR = 8
"""Classes that have turns of the search, those that take most of the time."""
MOST_CLASSES = 64
"""Classes that are told apart at all."""


def sweep(target: CommandTarget, job: SearchJob, device: Device, settings: Settings, *,
          repeats: int = 0, on_trial: Callable[[Trial], None] | None = None,
          progress: Progress | None = None, cancel: threading.Event | None = None) -> LoopResult:
    """Search the knobs of `target.source` in `job.tree`; when stopped, return what it has so far.

    Raises InputError when the source has no knobs or its benchmark does not work as it stands.
    """
    job.check()
    if repeats and repeats < LEAST_REPEATS:
        raise InputError(f"a comparison needs {LEAST_REPEATS} runs or more")
    if not target.source:
        raise InputError("no source is named whose knobs can be searched", where="kernel_source")
    return CommandLoop(target, job, device, settings, progress, cancel).search(
        repeats, on_trial or (lambda trial: None))


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """What came of one configuration."""

    correctness: Correctness
    reason: str = ""
    ratio: float | None = None
    by_class: Mapping[str, float] | None = None
    latency_us: float | None = None


class CommandLoop(BenchmarkEvaluation):
    """What an evaluation can do, put to a search."""

    def __init__(self, target: CommandTarget, job: SearchJob, device: Device, settings: Settings,
                 progress: Progress | None, cancel: threading.Event | None) -> None:
        trees = Trees(candidate=job.tree, incumbent=job.tree, reference=job.reference or job.tree)
        super().__init__(target, trees, device, settings, progress, cancel, confirm_nothing)
        self.job, self.mode = job, target.quick or target.full
        path = Path(job.tree) / target.source
        if path.is_symlink():
            raise InputError("is a link: a copy would be written through it", where=target.source)
        self.source = TunableSource.read(Path(job.tree), target.source, language=target.language)
        self.space = self.source.space(job.only)
        self.kernel = self.source.kernel_id(target.op)
        self.ruling = Incumbent(self.space, MARGIN)
        self.trials: list[Trial] = []
        self.first: RunPair | None = None
        self._sick = False
        self.columns: tuple[str, ...] = ()
        self.classes: tuple[ConfigRows, ...] = ()

    def search(self, repeats: int, on_trial: Callable[[Trial], None]) -> LoopResult:
        """Try configurations until the budget is spent, then look again at those that may win."""
        contenders: tuple[Contender, ...] = ()
        with contextlib.suppress(Cancelled), clean_runs.watch(self.device) as self.undisturbed:
            try:
                self._rehearse()
                self._default = self._side("incumbent", self.job.tree)
                self._build(self._default)
                try:
                    self._try_all(on_trial)
                    contenders = self._contenders(repeats)
                except (BrokenIncumbent, BenchmarkFault, DeviceFault) as ended:
                    if self.ruling.best is None:
                        raise
                    self.notes.append(f"ended after {len(self.trials)} trials: {ended.what}")
            finally:
                self._reader.close()
                file_copy.remove(self._folder)
        if again := sum(self.undisturbed.voided.values()):
            why = "; ".join(sorted(self.undisturbed.voided))
            self.notes.append(f"{again} runs were voided and done again: {why}")
        best = self.ruling.best
        config = best.config if best is not None else dict(self.space.default)
        return LoopResult(
            best=config, log_ratio=best.log_ratio if best is not None else None,
            source=self.source.apply(config), trials=tuple(self.trials), space_size=self.space.size,
            notes=tuple(self.notes), columns=self.columns, classes=self.classes,
            contenders=contenders)

    def _try_all(self, on_trial: Callable[[Trial], None]) -> None:
        rota = RoundRobin(self._strategy)
        walk = AskTell(rota, self.space)
        while len(self.trials) < self.job.budget and not self._cancelled():
            config = walk.next()
            if config is None:
                return
            began = time.monotonic()
            try:
                tried = self._try(config) if self.first is not None else self._try_default()
            except BrokenIncumbent as sick:
                if self.first is None or self._sick:
                    raise
                self._sick = True  # a hiccup of the machine: whatever was found is not lost to it
                self.notes.append(f"the default failed at trial {len(self.trials)}: {sick.what}")
                tried = TrialResult(correctness="FAIL", reason="the default failed beside it")
            trial = self._ruled(config, tried, time.monotonic() - began)
            if not self.trials:
                rota.care_for(tuple(one.name for one in self.classes[:CARED_FOR]))
            rota.tell(config, trial.log_ratio, tried.by_class)
            self.trials.append(trial)
            on_trial(trial)

    def _strategy(self) -> Strategy:
        from harness.search.bayesian.bayesian_search import BayesianSearch

        return BayesianSearch(self.space, self.job.seed, ())

    def _try_default(self) -> TrialResult:
        """Run the default beside itself: what its rows are, and how much is noise."""
        try:
            pair = self._pair({"incumbent": self._default, "candidate": self._default})
            if pair.candidate.failed:
                raise BenchmarkFault("failed-check", pair.candidate.failed[0].what)
        except BenchmarkFault as fault:
            raise BrokenIncumbent(fault) from None
        self.first = pair
        turned = RunPair(incumbent=pair.candidate, candidate=pair.incumbent)
        found = run_pairs.build(self.target, self.measure, [pair, turned])
        run_pairs.expect_named(self.target, found, self.mode)
        if self.target.weights is not None and found.shares.names_none:
            self.notes.append("the quick command has no row that the weights name: all count alike")
        self._know(found)
        return self._seen_in(found, pair.candidate, 0)

    def _try(self, config: Config) -> TrialResult:
        checked = self.source.check(config)
        if checked.refusal:
            return TrialResult(correctness="REJECTED", reason=checked.refusal)
        assert self.first is not None
        try:
            side = self.side_of("trial", checked.config)
            pair = self._pair({"incumbent": self._default, "candidate": side})
            if pair.candidate.failed:
                return TrialResult(correctness="FAIL", reason=pair.candidate.failed[0].what)
            row_keys.expect_as_many(pair.incumbent.table, pair.candidate.table, "the default")
            found = run_pairs.build(self.target, self.measure, [self.first, pair])
        except BenchmarkFault as fault:
            return TrialResult(correctness="REJECTED" if fault.kind == "build" else "FAIL",
                         reason=str(fault))
        return self._seen_in(found, pair.candidate, 1)

    def side_of(self, name: str, config: Config) -> WorkingCopy:
        """Return a copy of the tree with a configuration set, built. Raises Fault."""
        side = self._side(name, self.job.tree)
        (side.tree / self.target.source).write_bytes(self.source.apply(config).encode())
        self._build(side)
        return side

    def _pair(self, sides: Mapping[str, WorkingCopy]) -> RunPair:
        number = len(self.trials)
        self._progress("timing", f"{self.mode.name} benchmark, trial {number}", None)
        runs = AlternatingRuns(self.bench(sides), self.mode, Plan()).runs(
            ORDER if number % 2 else ORDER[::-1]
        )
        return RunPair(incumbent=runs["incumbent"], candidate=runs["candidate"])

    def _know(self, found: Series) -> None:
        """Remember the classes of a command, those first that take most of the time."""
        inside = run_pairs.by_class(self.target, found.found, found.keys)
        summed = self.target.scoring == "total"  # then a class has its whole time already
        costly = sorted(found.classes,
                        key=lambda one: -one.incumbent_us * (1.0 if summed else one.weight))
        self.columns = found.found.columns
        self.classes = tuple(ConfigRows(name=one.name, cells=tuple(inside[one.name]))
                             for one in costly[:MOST_CLASSES])
        note = "config classes of little time are not looked at by themselves"
        if len(costly) > MOST_CLASSES and not any(note in one for one in self.notes):
            self.notes.append(f"{len(costly) - MOST_CLASSES} {note}")

    def _seen_in(self, found: Series, reading: TableReading, place: int) -> TrialResult:
        """Return what one pair of a series says."""
        known = {one.name for one in self.classes}
        return TrialResult(
            correctness="PASS", ratio=found.overall[place],
            latency_us=run_pairs.cost(self.target, self.measure, found, reading),
            by_class={one.name: one.log_ratios[place] for one in found.classes
                      if one.name in known})

    def _ruled(self, config: Config, tried: TrialResult, wall_s: float) -> Trial:
        trial = Trial(
            number=len(self.trials), config=config, tag=TAGS[tried.correctness],
            correctness=tried.correctness, candidate_id=self.source.candidate_id(
                self.settings.incumbent_tree, config),
            kernel_id=self.kernel, log_ratio=tried.ratio, latency_us=tried.latency_us,
            latency_kind=None if tried.latency_us is None else "reported", reason=tried.reason,
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), wall_s=round(wall_s, 4),
            by_class=dict(tried.by_class or {}))
        return replace(trial, tag="kept") if self.ruling.take(trial) else trial

    def _contenders(self, repeats: int) -> tuple[Contender, ...]:
        """Return what may be better than the best in some class, measured again if asked to."""
        best = self.ruling.best
        if best is None or self._cancelled():
            return ()
        names = [one.name for one in self.classes]
        chosen = finals.choose(self.trials, best, names)
        if not repeats or not chosen:
            return finals.screened(chosen, best, names)
        return self._again(best, chosen, repeats)

    def _again(self, best: Trial, chosen: list[Trial], repeats: int) -> tuple[Contender, ...]:
        sides = {"best": self._of(best, "best")}
        configs: dict[str, Config] = {}
        for number, trial in enumerate(chosen, 1):
            name = f"contender-{number}"
            with contextlib.suppress(BenchmarkFault):
                sides[name] = self._of(trial, name)
                configs[name] = trial.config
        names = [one.name for one in self.classes]
        runs = finals.repeat(self.bench(sides), self.mode, repeats, self.notes.append)
        found = finals.compared(self.target, self.measure, runs, configs, names)
        left = [one.config for one in found if any(showing.sure > 0 for showing in one.showings)]
        full = self.target.full
        if self.mode == full or not left:
            return found
        chosen_sides = {name: side for name, side in sides.items()
                        if name == "best" or side is self._default or configs[name] in left}
        runs = finals.repeat(self.bench(chosen_sides), full, repeats, self.notes.append)
        if "best" not in runs:
            return ()
        self._know(run_pairs.build(self.target, self.measure, [
            RunPair(incumbent=run, candidate=run) for run in runs["best"]]))
        return finals.compared(self.target, self.measure, runs, configs,
                               [one.name for one in self.classes])

    def _of(self, trial: Trial, name: str) -> WorkingCopy:
        if trial.config == self.space.default:
            return self._default
        return self.side_of(name, trial.config)

    def _cancelled(self) -> bool:
        return self._cancel is not None and self._cancel.is_set()
