"""Run the benchmark with a configuration's knobs set, paired with a run of the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.benchmark.runs import row_keys, run_pairs
from harness.benchmark.runs.alternating_runs import ORDER
from harness.benchmark.runs.command_session import BenchmarkSession
from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.runs.run_pairs import BrokenIncumbent, RunPair, Series
from harness.benchmark.runs.workdir import WorkingCopy
from harness.search.space.tunable_source import TunableSource
from harness.search.trials.trials import ConfigRows
from harness.trial_fields import Config, Correctness

MOST_CLASSES = 64
"""Most config classes that are scored; the others count in the whole table only."""


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """The outcome of one configuration; `by_class` has the log-ratio of each class."""

    correctness: Correctness
    reason: str = ""
    log_ratio: float | None = None
    by_class: Mapping[str, float] = field(default_factory=dict)
    latency_us: float | None = None


class KnobRuns:
    """Builds and runs configurations of one source in a tree, each paired with the default."""

    def __init__(self, session: BenchmarkSession, source: TunableSource, tree: str) -> None:
        self.session, self.source, self.tree = session, source, tree
        self.target = session.target
        self.mode = self.target.quick or self.target.full
        self.default_copy = session.built("incumbent", tree)
        self.columns: tuple[str, ...] = ()
        self.classes: tuple[ConfigRows, ...] = ()
        """The classes that cost most of the time first."""
        self._first: RunPair | None = None

    def run_default(self) -> TrialResult:
        """Run the default paired with itself, which shows its rows and the noise.

        Raises BrokenIncumbent if the default fails.
        """
        try:
            pair = self._run_pair(self.default_copy, 0)
            if pair.candidate.failed:
                raise BenchmarkFault("failed-check", pair.candidate.failed[0].what)
        except BenchmarkFault as fault:
            raise BrokenIncumbent(fault) from None
        self._first = pair
        swapped = RunPair(incumbent=pair.candidate, candidate=pair.incumbent)
        series = self.match_pairs(pair, swapped)
        run_pairs.expect_weights_apply(self.target, series, self.mode)
        if self.target.weights is not None and series.shares.names_none:
            self.session.notes.append(
                "the quick command has no row that the weights name: all count alike")
        self.learn_classes(series)
        return self._result(series, pair.candidate, 0)

    def run(self, config: Config, number: int) -> TrialResult:
        """Build and run the configuration of a trial, paired with the default.

        Raises BrokenIncumbent if the default fails.
        """
        checked = self.source.check(config)
        if checked.refusal:
            return TrialResult(correctness="REJECTED", reason=checked.refusal)
        assert self._first is not None
        try:
            pair = self._run_pair(self.configured_copy("trial", checked.config), number)
            if pair.candidate.failed:
                return TrialResult(correctness="FAIL", reason=pair.candidate.failed[0].what)
            row_keys.expect_same_row_count(
                pair.incumbent.table, pair.candidate.table, "the default")
            series = self.match_pairs(self._first, pair)
        except BenchmarkFault as fault:
            return TrialResult(correctness="REJECTED" if fault.kind == "build" else "FAIL",
                               reason=str(fault))
        return self._result(series, pair.candidate, 1)

    def configured_copy(self, name: str, config: Config) -> WorkingCopy:
        """Return a built copy of the tree with a configuration set. Raises BenchmarkFault."""
        copy = self.session.copy(name, self.tree)
        (copy.tree / self.target.source).write_bytes(self.source.apply(config).encode())
        self.session.build(copy)
        return copy

    def match_pairs(self, *pairs: RunPair) -> Series:
        """Return the series of some pairs. Raises BenchmarkFault and BrokenIncumbent."""
        return run_pairs.match_pairs(self.target, self.session.row_cost, pairs)

    def learn_classes(self, series: Series) -> None:
        """Store the config classes of a command's table, the most expensive first."""
        keys = run_pairs.rows_by_class(self.target, series.config, series.keys)
        is_sum = self.target.scoring == "total"  # then a class's cost is that of all its rows
        by_cost = sorted(series.classes,
                         key=lambda one: -one.incumbent_us * (1.0 if is_sum else one.weight))
        self.columns = series.config.columns
        self.classes = tuple(ConfigRows(name=one.name, cells=tuple(keys[one.name]))
                             for one in by_cost[:MOST_CLASSES])
        note = "config classes of little time are not searched separately"
        if len(by_cost) > MOST_CLASSES and not any(note in n for n in self.session.notes):
            self.session.notes.append(f"{len(by_cost) - MOST_CLASSES} {note}")

    def _run_pair(self, candidate: WorkingCopy, number: int) -> RunPair:
        self.session.progress("timing", f"{self.mode.name} benchmark, trial {number}", None)
        runner = self.session.runner({"incumbent": self.default_copy, "candidate": candidate})
        readings = runner.run_in_turn(ORDER if number % 2 else ORDER[::-1], self.mode)
        return RunPair(incumbent=readings["incumbent"], candidate=readings["candidate"])

    def _result(self, series: Series, reading: TableReading,
                side_index: int) -> TrialResult:
        """Return the result of one pair of a series."""
        known = {entry.name for entry in self.classes}
        return TrialResult(
            correctness="PASS", log_ratio=series.overall[side_index],
            latency_us=run_pairs.table_cost(self.target, self.session.row_cost, series, reading),
            by_class={entry.name: entry.log_ratios[side_index] for entry in series.classes
                      if entry.name in known})
