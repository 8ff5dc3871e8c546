"""Benchmark tables, pairs of runs and shape weights made from a few CSV lines."""

from __future__ import annotations

from harness.benchmark.runs import result_table, run_pairs
from harness.benchmark.runs.result_table import ResultTable, TableReading
from harness.benchmark.runs.run_pairs import RunPair
from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.call_trace import weights
from tests.support.benchmarks.benchmark_case import TARGET

A, B, C = "1,1,{},0,10,20", "1,2,{},0,20,40", "2,2,{},0,40,80"


def table_of(*lines: str, head: str = "m,n,at,err,fwd_us,bwd_us") -> ResultTable:
    """Return the table with these CSV lines."""
    return ResultTable(columns=tuple(head.split(",")), rows=tuple(tuple(line.split(","))
                                                            for line in lines))


def reading_of(
    *lines: str,
    benchmark: CommandTarget = TARGET,
    head: str = "m,n,at,err,fwd_us,bwd_us",
) -> TableReading:
    return result_table.judge_table(
        table_of(*lines, head=head), benchmark, RowCost(benchmark), csv="b.csv"
    )


def pair(incumbent: tuple[str, ...], candidate: tuple[str, ...],
         benchmark: CommandTarget = TARGET) -> RunPair:
    return RunPair(
        incumbent=reading_of(*incumbent, benchmark=benchmark),
        candidate=reading_of(*candidate, benchmark=benchmark),
    )


def run(number: int, *lines: str) -> tuple[str, ...]:
    """Return one run's lines; the column `at` differs between runs."""
    return tuple(line.format(number) for line in lines)


def series(*pairs: RunPair, benchmark: CommandTarget = TARGET) -> run_pairs.Series:
    return run_pairs.match_pairs(benchmark, RowCost(benchmark), pairs)


def weights_of(*lines: str) -> weights.Weights:
    return weights.parse("\n".join(lines).encode(), "calls.csv")
