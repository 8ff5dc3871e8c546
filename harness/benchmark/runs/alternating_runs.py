"""Run a benchmark on incumbent and candidate in alternation; each pair reverses the order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from harness.benchmark.runs import result_table, row_keys, run_pairs, stopping_rule
from harness.benchmark.runs.clean_runs import CleanRuns
from harness.benchmark.runs.csv_reader import CsvReader
from harness.benchmark.runs.result_table import BenchmarkFault, FailedRow, TableReading
from harness.benchmark.runs.run_pairs import BrokenIncumbent, RunPair, Series
from harness.benchmark.runs.workdir import WorkingCopy
from harness.benchmark.spec.command_target import BenchmarkMode, CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.errors import KoptError
from harness.isolation.device_lock import DeviceLock
from harness.timing.plan import Plan

ORDER = ("incumbent", "candidate")
"""The order of the sides in odd pairs; even pairs reverse it."""


class IncorrectCandidate(KoptError):
    """A row of the candidate fails its check, so that the candidate is incorrect."""

    exit_code = 1

    def __init__(self, failure: FailedRow, name: str, rows: int) -> None:
        super().__init__(f"row {name}: {failure.what}")
        self.name, self.complaint, self.rows = name, failure.what, rows


@dataclass(frozen=True, kw_only=True)
class BenchmarkRunner:
    """Working copies by name, and what runs the benchmark in them: the reader, lock, monitor."""

    target: CommandTarget
    row_cost: RowCost
    copies: Mapping[str, WorkingCopy]
    reader: CsvReader
    lock: Callable[[], AbstractContextManager[DeviceLock]]
    progress: Callable[[str, str, float | None], None]
    clean_runs: CleanRuns = field(default_factory=CleanRuns)

    def run(self, name: str, mode: BenchmarkMode, held: DeviceLock) -> TableReading:
        """Run one copy's benchmark. Raises BenchmarkFault, or BrokenIncumbent for the incumbent."""
        target = self.target
        try:
            table, wall_s = self.clean_runs.run(
                name, lambda: self.copies[name].benchmark(mode, self.reader, held))
            reading = result_table.judge_table(table, target, self.row_cost, csv=mode.csv,
                                               wall_s=wall_s)
            if name == "incumbent" and reading.failed:
                row = reading.failed[0]
                raise BenchmarkFault("failed-check", f"row {row.row + 1}: {row.what}", fix=(
                    "" if target.check.rule else
                    f"say what passes, such as check: '{target.check.column} == 0'"))
        except BenchmarkFault as fault:
            raise (BrokenIncumbent(fault) if name == "incumbent" else fault) from None
        return reading

    def run_in_turn(self, order: Sequence[str], mode: BenchmarkMode) -> dict[str, TableReading]:
        """Run each copy's benchmark once, undisturbed, and raise what `run` raises."""
        with self.lock() as held:
            return self.clean_runs(lambda: {name: self.run(name, mode, held) for name in order},
                                   alone=lambda: self.run("incumbent", mode, held))


class AlternatingRuns:
    """The pairs of one mode so far. Each pair takes the lock anew, so that others get turns."""

    def __init__(self, runner: BenchmarkRunner, mode: BenchmarkMode, plan: Plan) -> None:
        self.runner, self.mode, self.plan = runner, mode, plan
        self.pairs: list[RunPair] = []

    def run(self) -> Series:
        """Run pairs until more would hardly change the verdict.

        Raises BenchmarkFault (a run of the candidate), IncorrectCandidate (one of its rows),
        BrokenIncumbent and Cancelled.
        """
        looks = stopping_rule.at_least(self.plan.looks)
        for number in range(1, looks[-1] + 1):
            self._run_pair(number, looks[-1])
            if number in looks:
                series = self._series(self.pairs)
                run_pairs.expect_weights_apply(self.runner.target, series, self.mode)
                if stopping_rule.is_enough(series, self.plan):
                    break
        return series

    def repeat(self) -> Series:
        """Run three more pairs and return them alone; their rows must match all earlier ones."""
        earlier = len(self.pairs)
        for number in range(earlier + 1, earlier + stopping_rule.LEAST_PAIRS + 1):
            self._run_pair(number, earlier + stopping_rule.LEAST_PAIRS)
        self._series(self.pairs)
        return self._series(self.pairs[earlier:])

    def _series(self, pairs: Sequence[RunPair]) -> Series:
        return run_pairs.match_pairs(self.runner.target, self.runner.row_cost, pairs)

    def _run_pair(self, number: int, most: int) -> None:
        self.runner.progress("timing", f"{self.mode.name} benchmark, pair {number} of ≤{most}",
                             number / most)
        readings = self.runner.run_in_turn(ORDER if number % 2 else ORDER[::-1], self.mode)
        pair = RunPair(incumbent=readings["incumbent"], candidate=readings["candidate"])
        if pair.candidate.failed:
            raise self._incorrect(pair)
        row_keys.expect_same_row_count(pair.incumbent.table, pair.candidate.table, "the incumbent")
        self.pairs.append(pair)

    def _incorrect(self, pair: RunPair) -> IncorrectCandidate:
        """Return the first row that fails, named by its config columns."""
        failed, table = pair.candidate.failed, pair.candidate.table
        columns = row_keys.find_config_columns(
            self.runner.target, [pair.incumbent.table, table], [table]).columns
        keys = [table.cells(row, columns) for row in range(len(table.rows))]
        name = row_keys.row_labels(keys, columns)[keys[failed[0].row]] if columns else ""
        return IncorrectCandidate(failed[0], name or str(failed[0].row + 1), len(failed))
