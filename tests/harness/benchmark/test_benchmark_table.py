"""Reading a benchmark's table: units, checks, faults, rows, classes and numbers of pairs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from harness.benchmark.runs import result_table, row_keys, run_pairs, stopping_rule
from harness.benchmark.runs.result_table import BenchmarkFault, ResultTable, TableReading
from harness.benchmark.runs.run_pairs import BrokenIncumbent, RunPair
from harness.benchmark.spec.metric_units import RowCost
from harness.benchmark.verdict import benchmark_rows
from harness.timing.plan import Plan
from tests.support.benchmarks.benchmark_case import TARGET, target
from tests.support.benchmarks.table_case import A, B, C, pair, reading_of, run, series

FAULTS = [
    ("empty-table", (), {}, "b.csv has a header and no rows"),
    ("missing-column", ("1,2",), {"head": "m,fwd_us"}, "b.csv has no column 'err'"),
    ("missing-column", ("1,0,2",), {"head": "m,err,fwd_us"}, "b.csv has no column 'bwd_us'"),
    ("nan", ("1,2,3,0,nan,5",), {}, "b.csv row 1: fwd_us is NaN"),
    ("nan", ("1,2,3,0,4,5", "1,2,3,0,,5"), {}, "b.csv row 2: fwd_us is empty"),
    ("not-a-number", ("1,2,3,0,4,fast",), {}, "b.csv row 1: bwd_us is 'fast', not a number"),
    ("not-a-number", ("1,2,3,0,1_0,5",), {}, "b.csv row 1: fwd_us is '1_0', not a number"),
    ("not-positive", ("1,2,3,0,0,5",), {}, "b.csv row 1: fwd_us is 0, not a number above zero"),
    ("not-positive", ("1,2,3,0,-1,5",), {}, "b.csv row 1: fwd_us is -1, not a number above zero"),
    ("not-positive", ("1,2,3,0,inf,5",), {}, "b.csv row 1: fwd_us is inf, not a number above zero"),
    *(("not-positive", (f"1,2,3,0,{us},5",), {}, f"b.csv row 1: fwd_us is {us}, outside the range "
       "of any metric") for us in ("1e-310", "1e-20", "1e300")),
]


@pytest.mark.parametrize(("kind", "lines", "more", "message"), FAULTS)
def test_each_table_fault_has_kind_and_line(kind: str, lines: tuple[str, ...],
                                            more: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchmarkFault) as caught:
        reading_of(*lines, **more)
    assert (caught.value.kind, caught.value.what) == (kind, message)


def test_file_without_header_is_empty() -> None:
    with pytest.raises(BenchmarkFault, match=r"b\.csv is empty") as caught:
        result_table.judge_table(
            ResultTable(columns=(), rows=()), TARGET, RowCost(TARGET), csv="b.csv"
        )
    assert caught.value.kind == "empty-table"


def test_times_of_failing_rows_are_ignored() -> None:
    reading = reading_of("1,2,3,0,4,5", "2,2,3,1,nan,0", "3,2,3,nan,4,5")
    assert [(failure.row, failure.what) for failure in reading.failed] == [
        (1, "err is '1', expected == 0"), (2, "err is 'nan', expected == 0")]


def test_steady_columns_are_config_columns() -> None:
    result = series(pair(run(1, A, B, C), run(2, C, A, B)), pair(run(3, B, C, A), run(4, A, B, C)))
    assert result.config == row_keys.ConfigColumns(columns=("m", "n"))
    assert [row_class.name for row_class in result.classes] == ["m=1 n=1", "m=1 n=2", "m=2 n=2"]
    assert result.overall == (0.0, 0.0) and len(result.keys) == 3


def test_rows_are_matched_by_configuration() -> None:
    slow = "2,2,{},0,20,40"
    result = series(
        pair(run(1, A, B, C), run(2, slow, B, A)),
        pair(run(3, C, B, A), run(4, B, slow, A)),
    )
    assert [row_class.log_ratios for row_class in result.classes] == [(0, 0), (0, 0), pytest.approx(
        (math.log(2),) * 2)]
    assert result.classes[2].candidate_us == pytest.approx(60)
    assert result.classes[2].incumbent_us == pytest.approx(120)
    assert result.overall == pytest.approx((math.log(2) / 3,) * 2)


def test_constant_column_is_checked_but_not_named() -> None:
    benchmark = target(configs=())
    head = "m,dtype,err,fwd_us,bwd_us"
    ours = reading_of("1,fp16,0,1,1", "2,fp16,0,1,1", head=head, benchmark=benchmark)
    theirs = reading_of("1,fp8,0,1,1", "2,fp8,0,1,1", head=head, benchmark=benchmark)
    assert [
        row_class.name for row_class in series(RunPair(incumbent=ours, candidate=ours)).classes
    ] == ["m=1", "m=2"]
    message = "missing: m=1 dtype=fp16, m=2 dtype=fp16; new: m=1 dtype=fp8"
    with pytest.raises(BenchmarkFault, match=message):
        series(RunPair(incumbent=ours, candidate=theirs))


def test_single_row_is_named_by_all_columns() -> None:
    result = series(pair(run(1, A), run(2, A)), pair(run(3, A), run(4, A)))
    assert [row_class.name for row_class in result.classes] == ["m=1 n=1"]
    bare = reading_of("0,1,1", head="err,fwd_us,bwd_us")
    assert [
        row_class.name for row_class in series(RunPair(incumbent=bare, candidate=bare)).classes
    ] == ["all"]


CHANGED = [
    ((A, B, C), (A, B), "changed-rows", "has 2 rows, the incumbent has 3; missing: m=2 n=2"),
    ((A, B), (A, B, C), "changed-rows", "has 3 rows, the incumbent has 2; new: m=2 n=2"),
    ((A, B), (A, "7,2,{},0,1,1"), "changed-rows",
     "has 2 rows, the incumbent has 2; missing: m=1 n=2; new: m=7 n=2"),
    ((A, B), (A, A), "duplicate-rows",
     "rows 1 and 2 have the same configuration: m=1 n=1"),
]


@pytest.mark.parametrize(("ours", "theirs", "kind", "message"), CHANGED)
def test_changed_rows_are_the_candidates_fault(
        ours: tuple[str, ...], theirs: tuple[str, ...], kind: str, message: str) -> None:
    with pytest.raises(BenchmarkFault) as caught:
        series(pair(run(1, *ours), run(2, *theirs)), pair(run(3, *ours), run(4, *theirs)))
    assert (caught.value.kind, caught.value.what) == (kind, message)


@pytest.mark.parametrize("runs", [((A, A), (A, A)), ((A, B), (A, B, C)),
                                  ((A, B), (A, "7,7,{},0,1,1"))])
def test_changing_incumbent_rows_raise_broken_incumbent(
        runs: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(BrokenIncumbent, match="the incumbent's own benchmark: "):
        series(*(pair(run(n, *rows), run(9 + n, A, B)) for n, rows in enumerate(runs)))


def test_column_unsteady_for_the_candidate_is_left_out() -> None:
    def at(temperature: int) -> TableReading:
        return reading_of(f"1,1,{temperature},0,1,1", f"1,2,{temperature},0,1,1")

    result = series(RunPair(incumbent=at(45), candidate=at(45)), RunPair(incumbent=at(45),
                                                                         candidate=at(46)))
    assert result.config == row_keys.ConfigColumns(columns=("m", "n"), unsteady=("at",))


def test_candidate_cannot_change_config_columns() -> None:
    with pytest.raises(BenchmarkFault, match="missing: m=1 n=1"):
        series(pair(run(1, A, C), run(1, A, C)), pair(run(1, A, C), run(1, "3,3,{},0,1,1", C)))


def test_ignored_column_is_not_a_config_column() -> None:
    benchmark = target(ignore=("at",))
    result = series(pair(run(1, A, B), run(2, A, B), benchmark), benchmark=benchmark)
    assert result.config.columns == ("m", "n")


def test_missing_config_column_is_reported() -> None:
    ours, theirs = (
        reading_of(*run(1, A, B)),
        reading_of("1,0,1,1", "2,0,1,1", head="n,err,fwd_us,bwd_us"),
    )
    with pytest.raises(BenchmarkFault, match="the column 'm' is missing") as caught:
        series(RunPair(incumbent=ours, candidate=theirs))
    assert caught.value.kind == "missing-column"


def test_classes_weigh_their_number_of_rows() -> None:
    benchmark = target(configs=("m",))
    half = "1,2,{},0,10,20"
    result = series(
        *(pair(run(n, A, B, C), run(9 + n, A, half, C), benchmark) for n in range(2)),
        benchmark=benchmark,
    )
    assert [(row_class.name, len(row_class.keys)) for row_class in result.classes] == [
        ("m=1", 2),
        ("m=2", 1),
    ]
    assert result.classes[0].log_ratios == pytest.approx((math.log(2) / 2,) * 2)


@pytest.mark.parametrize(("scoring", "speedup"), [("geometric", 2 ** (1 / 3)),
                                                  ("total", (30 + 60 + 120) / (30 + 60 + 60))])
def test_scoring_is_geometric_or_total(scoring: Any, speedup: float) -> None:
    benchmark = target(scoring=scoring)
    half = "2,2,{},0,20,40"
    pairs = [pair(run(n, A, B, C), run(9 + n, A, B, half), benchmark) for n in range(3)]
    result = series(*pairs, benchmark=benchmark)
    verdict = benchmark_rows.verdict_of(
        benchmark_rows.ModeResults(
            target=benchmark,
            row_cost=RowCost(benchmark),
            plan=Plan(),
            mode=benchmark.full,
            pairs=pairs,
            series=result,
        )
    )
    assert verdict.speedup == pytest.approx(speedup) and verdict.latency_kind == "reported"
    assert verdict.latency_us == pytest.approx(
        150 if scoring == "total" else (30 * 60 * 60) ** (1 / 3))
    assert [row.shapes for row in verdict.rows] == [("m=1 n=1",), ("m=1 n=2",), ("m=2 n=2",)]


def classes(*gains: float, spread: float = 0.0) -> run_pairs.ClassSeries:
    """Return a class with the given gain of each pair."""
    return run_pairs.ClassSeries(
        name="c", keys=(("1",),), weight=1.0, by_metric={}, candidate_us=1.0, incumbent_us=1.0,
        log_ratios=tuple(math.log1p(gain + spread * (-1) ** n) for n, gain in enumerate(gains)))


SURE, UNSURE = (0.0151, 0.0150, 0.0152), (0.06, -0.05, 0.04)


AGAIN = [
    ((0.0301, 0.03, 0.0302), None, "faster", ""),
    (SURE, None, "tie", "1.51% faster, but not when it was measured again"),
    (SURE, UNSURE, "tie", "1.51% faster, but not when it was measured again"),
    (SURE, SURE, "faster", "1.51% faster, and 1.51% when it was measured again"),
    ((0.0051, 0.005, 0.0052), (0.0051, 0.005, 0.0052), "faster",
     "0.51% faster, and 0.51% when it was measured again"),
    ((0.0051, 0.005, 0.0052), UNSURE, "tie", "0.51% faster, but not when it was measured again"),
    (UNSURE, None, "tie", ""),
    ((-0.2, -0.201, -0.199), None, "slower", ""),
]


@pytest.mark.parametrize(("first", "again", "outcome", "note"), AGAIN)
def test_gain_under_2_percent_needs_a_repetition(
        first: tuple[float, ...], again: tuple[float, ...] | None, outcome: str,
        note: str) -> None:
    plan = Plan(looks=(3,), alpha=0.05)
    assert stopping_rule.class_outcome(
        classes(*first), plan, classes(*again) if again else None
    ) == (outcome, note)


def test_worse_metric_is_named_with_a_gain() -> None:
    row_class = replace(classes(0.2, 0.201, 0.199), by_metric={
        "fwd_us": tuple(math.log1p(g) for g in (0.4, 0.401, 0.399)),
        "bwd_us": tuple(math.log1p(g) for g in (-0.1, -0.101, -0.099))})
    assert stopping_rule.class_outcome(row_class, Plan(looks=(3,), alpha=0.05), None) == (
        "faster", "bwd_us is 11.1% worse")


@pytest.mark.parametrize(("most", "looks"), [(None, stopping_rule.LOOKS), (3, (3,)), (1, (3,)),
                                             (7, (3, 4, 6)), (200, stopping_rule.LOOKS)])
def test_at_least_three_pairs_run(most: int | None, looks: tuple[int, ...]) -> None:
    assert stopping_rule.plan_for(Plan(), most).looks == looks
    assert stopping_rule.looks_with_enough_pairs((1, 2)) == (3,) \
        and stopping_rule.looks_with_enough_pairs((1, 4)) == (4,)
