"""Weights files: how they are read, which rows they name, and how they enter the score."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.discovery.classes import proposal
from harness.benchmark.runs import run_pairs
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.run_pairs import BrokenIncumbent
from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.benchmark.verdict import benchmark_rows
from harness.call_trace import weights
from harness.errors import InputError
from harness.formats.json_codec import from_json, to_json
from harness.timing.plan import Plan
from harness.verdict import Verdict
from tests.support.benchmarks.benchmark_case import TARGET, target
from tests.support.benchmarks.table_case import A, B, C, pair, run, series, weights_of

# the file

FAULTS = [
    ("", "calls.csv: is empty ("),
    ("\n , \n", "calls.csv: is empty ("),
    ("m,calls\n", "calls.csv: has a header and no rows"),
    ("m,n\n1,2\n", "calls.csv: has no column 'calls' (it has m, n)"),
    ("m,Calls\n1,2\n", "calls.csv: has no column 'calls' (it has m, Calls)"),
    ("calls\n2\n", "calls.csv: has no column for a dimension ("),
    ("m,m,calls\n1,2,3\n", "calls.csv: has the column 'm' twice"),
    ("m,calls\n1,2\n2,-3\n", "calls.csv:3: calls is '-3', not a number above zero ("),
    ("m,calls\n1,nan\n", "calls.csv:2: calls is 'nan', not a number above zero ("),
    ("m,calls\n1,inf\n", "calls.csv:2: calls is 'inf', not a number above zero ("),
    ("m,calls\n1,0\n", "calls.csv:2: calls is '0', not a number above zero (leave out shapes"),
    ("m,calls\n1,\n", "calls.csv:2: calls is empty, not a number above zero ("),
    ("m,calls\n1,1\n2,1e308\n", "calls.csv:3: calls is '1e308', not between 1e-18 and 1e+18 ("),
    ("m,calls\n1,5e-324\n", "calls.csv:2: calls is '5e-324', not between 1e-18 and 1e+18 ("),
    ("m,calls\n1,many\n", "calls.csv:2: calls is 'many', not a number above zero ("),
    ("m,calls\n1,1_0\n", "calls.csv:2: calls is '1_0', not a number above zero ("),
    ("m,calls\n1,2,3\n", "calls.csv:2: has 3 cells, but there are 2 columns"),
    ("m,calls\n1\n", "calls.csv:2: has 1 cells, but there are 2 columns"),
    ("m,n,calls\n1,2,3\n\n1,2,4\n", "calls.csv:4: m=1 n=2 is also in line 2 (add up"),
    ("m,calls\n64,1\n64.0,2\n", "calls.csv:3: m=64.0 is also in line 2 ("),
    ("m,calls\n\"1,2\n", "calls.csv: is not CSV: unexpected end of data ("),
    ("m,calls\n" + "".join(f"{n},1\n" for n in range(4097)), "calls.csv: has more than 4096 rows"),
    ("m,calls\n" + "1" * (4 << 20), "calls.csv: is larger than 4 MiB ("),
]


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=[message[:40] for _, message in FAULTS])
def test_malformed_weights_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        weights.parse(text.encode(), "calls.csv")
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_sums_stay_finite_at_the_limits() -> None:
    rows = [f"{n},{weights.MOST_CALLS}" for n in range(weights.LIMITS["rows"])]
    shares = weights.spread(weights_of("m,calls", *rows), ("m",), (("0",), ("absent",)))
    assert "100.0% of the calls, not measured" in " ".join(
        shares.notes(weights_of("m,calls", *rows), ("a", "b"))
    )
    least = weights.spread(
        weights_of("m,calls", f"1,{weights.LEAST_CALLS}"), ("m",), (("1",),) * 9
    )
    assert 0 < math.fsum(least.of) < math.inf


def test_weights_file_that_is_not_utf8_is_reported() -> None:
    with pytest.raises(InputError, match="is not CSV: 'utf-8' codec"):
        weights.parse(b"m,calls\n\xff,1\n", "calls.csv")


def test_weights_file_may_have_index_bom_and_spaces() -> None:
    parsed = weights.parse("\ufeff,m , dtype,calls\n0, 64,fp16, 3\n1,128,fp8,1.5e1\n".encode(),
                               "calls.csv")
    assert parsed.columns == ("m", "dtype")
    assert [(shape.cells, shape.calls) for shape in parsed.shapes] == [
        (("64", "fp16"), 3.0), (("128", "fp8"), 15.0)]


KEYS = (("1", "fp16"), ("2", "fp16"), ("2", "fp8"), ("64", "fp8"))
SPREADS: list[tuple[tuple[str, ...], tuple[float, ...], tuple[int, ...], int]] = [
    (("m,d,calls", "1,fp16,4", "2,fp16,5", "2,fp8,6", "64,fp8,7"), (4, 5, 6, 7), (), 0),
    (("d,calls,m", "fp8,7,64.0", "fp16,4,1"), (4, 4, 4, 7), (1, 2), 0),
    (("m,calls", "1,3", "2,8", "64,1"), (3, 4, 4, 1), (), 0),
    (("m,calls", "2,8", "3,1"), (4, 4, 4, 4), (0, 3), 1),
    (("d,calls", "fp16,8", "fp8,2"), (4, 4, 1, 1), (), 0),
    (("d,calls", "FP16,8"), (1, 1, 1, 1), (0, 1, 2, 3), 1),
]


@pytest.mark.parametrize(("lines", "of", "unnamed", "absent"), SPREADS)
def test_unnamed_rows_get_the_smallest_weight(
        lines: tuple[str, ...], of: tuple[float, ...], unnamed: tuple[int, ...],
        absent: int) -> None:
    shares = weights.spread(weights_of(*lines), ("m", "d"), KEYS)
    assert shares.of == of and shares.unnamed == unnamed and len(shares.absent) == absent
    assert shares.names_none is (len(unnamed) == 4)


def test_large_integers_stay_distinct() -> None:
    seeds = weights_of("seed,calls", "9007199254740993,1", "9007199254740992,2")
    assert weights.spread(seeds, ("seed",), [("9007199254740992",)]).of == (2.0,)


# the score of a benchmark's rows: A costs 30, B 60, C 120, and the candidate halves C

HALF = "2,2,{},0,20,40"
CALLS = ("m,n,calls", "1,1,1", "1,2,2", "2,2,5")
SCORES: list[tuple[str, tuple[str, ...], float, float]] = [
    ("geometric", (), 2 ** (1 / 3), (30 * 60 * 60) ** (1 / 3)),
    ("geometric", CALLS, 2 ** (5 / 8), (30 * 60**2 * 60**5) ** (1 / 8)),
    ("geometric", ("n,calls", "1,6", "2,4"), 2 ** (2 / 10), (30**6 * 60**2 * 60**2) ** (1 / 10)),
    ("geometric", ("m,n,calls", "2,2,6", "1,1,3"), 2 ** (6 / 12),
     (30**3 * 60**3 * 60**6) ** (1 / 12)),
    ("total", (), 210 / 150, 150),
    ("total", CALLS, (30 + 120 + 600) / (30 + 120 + 300), 450),
    ("total", ("m,n,calls", "1,2,10"), (300 + 600 + 1200) / (300 + 600 + 600), 1500),
]


def judged(benchmark: CommandTarget, *, better: str = HALF) -> tuple[run_pairs.Series, Verdict]:
    pairs = [pair(run(n, A, B, C), run(9 + n, A, B, better), benchmark) for n in range(3)]
    pairs_series = series(*pairs, benchmark=benchmark)
    return pairs_series, benchmark_rows.verdict_of(
        benchmark_rows.ModeResults(
            target=benchmark,
            row_cost=RowCost(benchmark),
            plan=Plan(),
            mode=benchmark.full,
            pairs=pairs,
            series=pairs_series,
        )
    )


@pytest.mark.parametrize("configs", [(), ("n",), ("*",)])
@pytest.mark.parametrize(("scoring", "lines", "speedup", "latency"), SCORES)
def test_score_is_weighted_by_calls(scoring: Any, lines: tuple[str, ...], speedup: float,
                                    latency: float, configs: tuple[str, ...]) -> None:
    benchmark = target(
        scoring=scoring, configs=configs, weights=weights_of(*lines) if lines else None
    )
    matched, verdict = judged(benchmark)
    assert verdict.speedup == pytest.approx(speedup)
    assert verdict.latency_us == pytest.approx(latency)
    assert sum(row.weight for row in verdict.rows) == pytest.approx(sum(matched.shares.of))
    turned = pair(run(1, A, B, C), run(2, HALF, A, B), benchmark).candidate
    assert run_pairs.table_cost(benchmark, RowCost(benchmark), matched, turned) == pytest.approx(
        latency
    )


def test_class_weight_is_the_sum_of_its_rows() -> None:
    matched, verdict = judged(target(configs=("n",), weights=weights_of(*CALLS)))
    assert {row.config_class: row.weight for row in verdict.rows} == {"n=1": 1.0, "n=2": 7.0}
    assert matched.classes[1].log_ratios == pytest.approx((5 / 7 * math.log(2),) * 3)
    assert [e.detail for e in verdict.evidence if e.kind == "score"] == [
        "1.542 (geometric mean of 3 rows, by calls)"]
    assert verdict.notes == ()


def test_unmatched_weights_and_rows_are_reported() -> None:
    _, verdict = judged(target(weights=weights_of("m,n,calls", "2,2,6", "8,8,2", "1,1,4")))
    assert verdict.notes == (
        "the weights do not name 1 of 3 rows, which get the smallest weight of the others "
        "(4 calls): m=1 n=2",
        "1 of 3 shapes of the weights, 16.7% of the calls, not measured: m=8 n=8")


def test_weights_without_matching_row_are_refused_by_full_benchmark() -> None:
    benchmark = target(
        quick_command="python bench.py --quick", weights=weights_of("m,calls", "7,1")
    )
    matched, verdict = judged(benchmark)
    assert benchmark.quick is not None
    run_pairs.expect_weights_apply(benchmark, matched, benchmark.quick)
    assert verdict.speedup == pytest.approx(2 ** (1 / 3)) and verdict.notes == ()
    with pytest.raises(InputError) as caught:
        run_pairs.expect_weights_apply(benchmark, matched, benchmark.full)
    assert str(caught.value) == (
        "target.weights: the weights match no row of the benchmark: they have shapes like m=7, but "
        "its rows are like m=1 n=1 (trace the shapes that are measured)")


def test_unknown_weights_column_is_reported() -> None:
    benchmark = target(weights=weights_of("m,batch,calls", "1,1,1"))
    message = r"has no column 'batch', which target.weights name"
    with pytest.raises(BenchmarkFault, match=message) as caught:
        pair(run(1, A), run(2, A), benchmark)
    assert caught.value.kind == "missing-column"


@pytest.mark.parametrize("column", ["err", "fwd_us", "at"])
def test_measured_column_does_not_identify_shapes(column: str) -> None:
    with pytest.raises(InputError, match=rf"target\.weights: '{column}' is not a config column"):
        target(ignore=("at",), weights=weights_of(f"m,{column},calls", "1,1,1"))


def test_candidate_cannot_change_weighted_columns() -> None:
    benchmark = target(weights=weights_of("n,calls", "1,9"))
    with pytest.raises(BenchmarkFault) as caught:
        series(pair(run(1, A, B), run(2, "1,7,{},0,10,20", B), benchmark), benchmark=benchmark)
    assert caught.value.kind == "changed-rows"
    with pytest.raises(BrokenIncumbent):
        series(*(pair(run(n, A, B), run(n, A, B), target(weights=weights_of("at,calls", "1,9")))
                for n in (1, 2)), benchmark=target(weights=weights_of("at,calls", "1,9")))


def test_core_classes_follow_calls_and_time() -> None:
    readings = [pair(run(n, A, B, C), run(n, A)).incumbent for n in (1, 2)]
    assert proposal.read_rows(target(weights=weights_of(*CALLS)), readings).shares == (30, 120, 600)
    with pytest.raises(InputError, match="the weights match no row of the benchmark"):
        proposal.read_rows(target(weights=weights_of("m,calls", "7,1")), readings)


def test_weights_survive_the_request_to_the_harness() -> None:
    benchmark = target(weights=weights_of(*CALLS))
    assert from_json(to_json(benchmark), CommandTarget) == benchmark
    assert benchmark.content_hash != TARGET.content_hash
