"""Pairs of runs of the incumbent and the candidate, until more would hardly change the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from harness.benchmark.runs import row_keys, run_pairs, stopping_rule
from harness.benchmark.runs.command_session import BenchmarkSession
from harness.benchmark.runs.run_pairs import RunPair, Series
from harness.benchmark.spec.command_target import BenchmarkMode
from harness.benchmark.verdict.benchmark_rows import IncorrectCandidate, ModeResults
from harness.timing.plan import Plan


class AlternatingRuns:
    """The pairs of one mode so far. Each pair takes the lock anew, so that others get turns."""

    def __init__(self, session: BenchmarkSession, mode: BenchmarkMode, plan: Plan) -> None:
        self.session, self.mode, self.plan = session, mode, plan
        self.target, self.row_cost = session.target, session.row_cost
        self.pairs: list[RunPair] = []

    def run(self) -> Series:
        """Run pairs until more would hardly change the verdict, or the plan allows no more.

        Raises BenchmarkFault (a run of the candidate), IncorrectCandidate (one of its rows),
        BrokenIncumbent and Cancelled.
        """
        looks = stopping_rule.looks_with_enough_pairs(self.plan.looks)
        for number in range(1, looks[-1] + 1):
            self._run_pair(number, looks[-1])
            if number in looks:
                series = self._series(self.pairs)
                run_pairs.expect_weights_apply(self.target, series, self.mode)
                if stopping_rule.is_enough(series, self.plan):
                    break
        return series

    def results(self, series: Series) -> ModeResults:
        """Return the results, with those of a repetition if a significant gain is small."""
        repetition = self._repeat() if stopping_rule.needs_repetition(series, self.plan) else None
        return ModeResults(target=self.target, row_cost=self.row_cost, plan=self.plan,
                           mode=self.mode, pairs=tuple(self.pairs), series=series,
                           repetition=repetition)

    def _repeat(self) -> Series:
        """Run three more pairs and return them alone; their rows must match all earlier ones."""
        earlier = len(self.pairs)
        for number in range(earlier + 1, earlier + stopping_rule.LEAST_PAIRS + 1):
            self._run_pair(number, earlier + stopping_rule.LEAST_PAIRS)
        self._series(self.pairs)
        return self._series(self.pairs[earlier:])

    def _series(self, pairs: Sequence[RunPair]) -> Series:
        return run_pairs.match_pairs(self.target, self.row_cost, pairs)

    def _run_pair(self, number: int, most: int) -> None:
        self.session.progress("timing", f"{self.mode.name} benchmark, pair {number} of ≤{most}",
                              number / most)
        pair = self.session.run_pair(self.mode, number)
        if pair.candidate.failed:
            raise self._incorrect(pair)
        row_keys.expect_same_row_count(pair.incumbent.table, pair.candidate.table, "the incumbent")
        self.pairs.append(pair)

    def _incorrect(self, pair: RunPair) -> IncorrectCandidate:
        """Return the failure of the first row that fails, named by its config columns."""
        failed, table = pair.candidate.failed, pair.candidate.table
        columns = row_keys.find_config_columns(
            self.session.target, [pair.incumbent.table, table], [table]).columns
        keys = [table.cells(row, columns) for row in range(len(table.rows))]
        name = row_keys.row_labels(keys, columns)[keys[failed[0].row]] if columns else ""
        return IncorrectCandidate(failed[0], name or str(failed[0].row + 1), len(failed))
