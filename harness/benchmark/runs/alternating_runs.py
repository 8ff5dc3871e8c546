"""Whole runs of a benchmark, incumbent and candidate in turn: each pair in the other order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from harness.benchmark.runs import result_table, run_pairs, stopping_rule
from harness.benchmark.runs import row_keys as rows
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
"""Of the sides in every other pair; in the others it is turned round."""


class IncorrectCandidate(KoptError):
    """A row of the candidate fails its check: it is incorrect, whatever it gained."""

    exit_code = 1

    def __init__(self, failure: FailedRow, name: str, rows: int) -> None:
        super().__init__(f"row {name}: {failure.what}")
        self.name, self.complaint, self.rows = name, failure.what, rows


@dataclass(frozen=True, kw_only=True)
class BenchmarkRunner:
    """What both modes need: the sides, what reads their files, the device, locked and watched."""

    target: CommandTarget
    measure: RowCost
    sides: Mapping[str, WorkingCopy]
    reader: CsvReader
    lock: Callable[[], AbstractContextManager[DeviceLock]]
    progress: Callable[[str, str, float | None], None]
    undisturbed: CleanRuns = field(default_factory=CleanRuns)


class AlternatingRuns:
    """The pairs of one mode so far; the lock is taken pair by pair, so that others get turns."""

    def __init__(self, bench: BenchmarkRunner, mode: BenchmarkMode, plan: Plan) -> None:
        self.bench, self.mode, self.plan = bench, mode, plan
        self.pairs: list[RunPair] = []
        self.series: Series | None = None

    def run(self) -> Series:
        """Collect pairs until it is enough.

        Raises Fault (the candidate's run), Wrong (its rows), BrokenIncumbent or Cancelled.
        """
        looks = stopping_rule.at_least(self.plan.looks)
        for number in range(1, looks[-1] + 1):
            self._pair(number, looks[-1])
            if number in looks:
                self.series = run_pairs.build(self.bench.target, self.bench.measure, self.pairs)
                run_pairs.expect_named(self.bench.target, self.series, self.mode)
                if stopping_rule.enough(self.series, self.plan):
                    break
        assert self.series is not None
        return self.series

    def again(self) -> Series:
        """Return what three more pairs say, matched with those before and then on their own."""
        had = len(self.pairs)
        for number in range(had + 1, had + stopping_rule.LEAST + 1):
            self._pair(number, had + stopping_rule.LEAST)
        self.series = run_pairs.build(self.bench.target, self.bench.measure, self.pairs)
        return run_pairs.build(self.bench.target, self.bench.measure, self.pairs[had:])

    def _pair(self, number: int, most: int) -> None:
        self.bench.progress("timing", f"{self.mode.name} benchmark, pair {number} of ≤{most}",
                            number / most)
        order = ORDER if number % 2 else ORDER[::-1]
        runs = self.runs(order)
        pair = RunPair(incumbent=runs["incumbent"], candidate=runs["candidate"])
        if pair.candidate.failed:
            raise self._wrong(pair)
        rows.expect_as_many(pair.incumbent.table, pair.candidate.table, "the incumbent")
        self.pairs.append(pair)

    def runs(self, order: Sequence[str]) -> dict[str, TableReading]:
        """Return one run of each side, one after the other. Raises what `reading` raises."""
        with self.bench.lock() as held:
            return self.bench.undisturbed(
                lambda: {name: self.reading(name, held) for name in order},
                alone=lambda: self.reading("incumbent", held))

    def reading(self, name: str, held: DeviceLock) -> TableReading:
        """Return one run of a side. Raises Fault, or BrokenIncumbent where that side is ill."""
        target = self.bench.target
        try:
            found, wall_s = self.bench.undisturbed.run(
                name, lambda: self.bench.sides[name].benchmark(self.mode, self.bench.reader, held))
            read = result_table.judge(
                found, target, self.bench.measure, csv=self.mode.csv, wall_s=wall_s
            )
            if name == "incumbent" and read.failed:
                row = read.failed[0]
                raise BenchmarkFault("failed-check", f"row {row.row + 1}: {row.what}", fix=(
                    "" if target.check.rule else
                    f"say what passes, such as check: '{target.check.column} == 0'"))
        except BenchmarkFault as fault:
            raise (BrokenIncumbent(fault) if name == "incumbent" else fault) from None
        return read

    def _wrong(self, pair: RunPair) -> IncorrectCandidate:
        """Name the first row that fails by what tells it apart."""
        failed, found = pair.candidate.failed, pair.candidate.table
        columns = rows.find_config_columns(
            self.bench.target, [pair.incumbent.table, found], [found]
        ).columns
        keys = [found.cells(row, columns) for row in range(len(found.rows))]
        name = rows.labels(keys, columns)[keys[failed[0].row]] if columns else ""
        return IncorrectCandidate(failed[0], name or str(failed[0].row + 1), len(failed))
