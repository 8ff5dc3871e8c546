"""Config classes from a table's rows: which columns explain the differences in cost, and why."""

from __future__ import annotations

import random
import re

import pytest

from engine.discovery.classes import strata
from engine.discovery.project import columns
from harness.benchmark.spec import table_rules
from tests.support.benchmarks import strata_case as case
from tests.support.benchmarks.strata_case import Row


def strata_of(
    rows: list[dict[str, object]], costs: list[float], **options: object
) -> strata.Strata:
    return strata.find_strata(case.columns_of(rows), costs, **options)  # type: ignore[arg-type]


def test_columns_that_choose_a_code_path_make_classes() -> None:
    """Columns that only change the amount of work make no class."""
    result = strata_of(*case.table(case.decode))
    assert result.configs == ("block_size <= 64", "mtp")
    assert [row_class.name for row_class in result.classes] == [
        "block_size<=64 mtp=1", "block_size<=64 mtp=2", "block_size<=64 mtp=4",
        "block_size>64 mtp=1", "block_size>64 mtp=2", "block_size>64 mtp=4"]
    assert result.explained > 0.95
    assert re.fullmatch(
        r"144 rows in 6 classes by block_size \(up to 64, or more\) and mtp; they account "
        r"for \d+% of the differences between rows in time for their size", result.why)


def test_column_that_explains_the_times_best_makes_the_classes_whatever_its_name() -> None:
    columns_of_table = {**case.DECODE, "swizzled": ("yes", "no")}
    result = strata_of(*case.table(
        lambda row: case.work(row) * (4 if row["swizzled"] == "no" else 1), columns_of_table))
    assert result.configs == ("swizzled",)


@pytest.mark.parametrize(("cost", "configs"), [
    pytest.param(lambda row: max(20.0, case.work(row)), (), id="small rows cost a constant time"),
    pytest.param(lambda row: case.work(row) * (5 if case.number(row, "context") > 4096 else 1),
                 ("context <= 4096",), id="long contexts take another code path"),
    pytest.param(lambda row: case.work(row) * case.number(row, "head_size"), ("head_size",),
                 id="a column of few values is not a size"),
])
def test_size_column_is_divided_where_its_cost_model_changes(
        cost: object, configs: tuple[str, ...]) -> None:
    result = strata_of(*case.table(cost))  # type: ignore[arg-type]
    if configs:
        assert result.configs == configs
    else:
        assert any(entry.startswith(("context <=", "batch <=")) for entry in result.configs)


def test_rows_with_one_cost_model_are_one_class() -> None:
    result = strata_of(*case.table(case.work))
    assert result.configs == ("*",)
    assert [
        (row_class.name, len(row_class.rows), row_class.core) for row_class in result.classes
    ] == [("all", 144, True)]
    assert result.why == \
        "all rows are one class: no column tells which rows differ in time for their size"


def test_operations_of_a_small_table_are_classes() -> None:
    rates = {"triad": (21.8, 13.9, 8.8), "dot": (15.4, 10.0, 8.8), "transpose": (8.5, 2.9, 2.0)}
    rows = [{"op": op, "n": n} for op in rates for n in (20_000, 200_000, 1_000_000)]
    costs = [1e6 / rate for op_rates in rates.values() for rate in op_rates]
    result = strata_of(rows, costs, is_timed=False)
    assert [each.name for each in result.classes] == ["op=triad", "op=dot", "op=transpose"]


def test_ratio_to_another_implementation_shows_classes() -> None:
    """Both implementations are slow at one context; their ratio depends on block_size."""
    def uneven(row: Row) -> float:
        return case.work(row) * (1 + (case.number(row, "context") == 1024))

    rows, costs = case.table(lambda row: uneven(row) * (1.3 if row["block_size"] == 16 else 1.0))
    _, other = case.table(uneven, seed=2)
    assert "block_size" in " ".join(strata_of(rows, costs, others=[other]).configs)


@pytest.mark.parametrize(("name", "cells", "why"), [
    ("dtype", ["fp8"] * 6, "the same in all rows"),
    ("shape", ["a", "b", "c", "d", "e", "f"], "different in every row"),
    ("name", ["1x", "2x", "3x", "4x", "5x", "6x"], "different in every row"),
    ("us_gluon", ["1.5", "2.5", "3", "4", "5", "6"], "a time or a rate"),
    ("Forward TFLOPS", ["1.5", "2.5", "3", "4", "5", "6"], "a time or a rate"),
    ("us_never", ["0", "1", "0", "0", "1", "0"], "a time or a rate"),
    ("us_failing", ["OOM", "1.5", "OOM", "OOM", "nan", "2.5"], "a time or a rate"),
    ("err_gluon", ["0", "1", "0", "0", "0", "0"], "a result"),
    ("check", ["PASS", "PASS", "FAIL", "PASS", "PASS", "PASS"], "a result"),
    ("occupancy", ["0.51", "0.62", "0.73", "0.84", "0.95", "0.26"], "a result: fractions that"),
    ("timestamp", ["17", "18", "19", "20", "21", "22"], "about the run, not the row"),
    ("idx", ["4", "5", "6", "7", "8", "9"], "the number of the row"),
    ("block_size", ["16", "16", "64", "64", "16", "64"], ""),
    ("causal", ["True", "False", "True", "False", "True", "False"], ""),
    ("context", ["512", "4096", "512", "4096", "65536", "65536"], ""),
    ("scale", ["0.125", "0.25", "0.125", "0.25", "0.125", "0.25"], ""),
])
def test_columns_outside_the_config_are_left_out(name: str, cells: list[str], why: str) -> None:
    """Left out are columns that are constant, unique in each row, or results of the run."""
    assert columns.classify_column(name, cells).why.startswith(why)
    assert bool(columns.classify_column(name, cells).why) == bool(why)


@pytest.mark.parametrize(("name", "cells", "role"), [
    ("context", ["512", "4096", "65536", "512"], "size"),
    ("batch", ["1", "64", "1", "64"], "size"),
    ("block_size", ["16", "64", "1024", "16"], "path"),
    ("heads_q", ["8", "64", "8", "64"], "path"),
    ("mtp", ["1", "2", "4", "1"], "path"),
    ("weird", ["3", "5", "3", "5"], "path"),
    ("wide", ["1", "10", "100", "1000"], "size"),
    ("kernel", ["paged", "ragged", "paged", "paged"], "path"),
    ("mixed", ["auto", "128", "auto", "64"], "path"),
])
def test_column_is_a_size_or_chooses_a_code_path(name: str, cells: list[str],
                                                 role: str) -> None:
    assert columns.classify_column(name, cells).role == role


def test_table_of_one_row_or_one_column_gets_classes() -> None:
    single = strata_of([{"m": 64}], [2.0])
    assert (single.configs, single.classes[0].name, single.classes[0].core) == (("*",), "all", True)
    column = strata_of([{"m": m} for m in (64, 64, 128, 128)], [1.0, 1.0, 9.0, 9.0])
    assert column.configs == ("m",)
    assert [kept.name for kept in column.classes] == ["m=64", "m=128"]


def test_few_unexplained_rows_become_one_class_each() -> None:
    result = strata_of([{"m": 64, "n": 32}, {"m": 128, "n": 32}, {"m": 128, "n": 64}],
                       [1.0, 1.01, 1.0])
    assert result.configs == ("m", "n") and len(result.classes) == 3
    assert "each row is a class of its own" in result.why


def test_row_order_changes_nothing() -> None:
    rows, costs = case.table(case.decode, noise=0.1)
    first = strata_of(rows, costs)
    order = list(range(len(rows)))
    random.Random(5).shuffle(order)
    again = strata_of([rows[at] for at in order], [costs[at] for at in order])
    assert again.configs == first.configs and again.why == first.why
    assert {
        row_class.name: sorted(order[row] for row in row_class.rows) for row_class in again.classes
    } == {row_class.name: sorted(row_class.rows) for row_class in first.classes}
    assert again.core == tuple(
        row_class.name for row_class in again.classes if row_class.name in first.core
    )


@pytest.mark.parametrize(("power", "noise", "least_right", "most_wrong"), [
    (0.6, 0.1, 38, 2), (0.6, 0.3, 32, 4), (0.0, 0.3, 0, 5)])
def test_columns_without_effect_rarely_make_classes(
        power: float, noise: float, least_right: int, most_wrong: int) -> None:
    """Few of 40 tables with 14 rows and nine columns get classes by a column without effect.

    With large noise, some reasons say that the rows are too few.
    """
    results = []
    for seed in range(40):
        drawn = random.Random(seed)
        rows: list[dict[str, object]] = [
            {"mtp": 1 + at % 2, **{f"knob_{name}": drawn.choice((3, 5)) for name in "abcdefgh"}}
            for at in range(14)]
        costs = [case.number(row, "mtp") ** power * drawn.lognormvariate(0, noise) for row in rows]
        results.append(strata_of(rows, costs))
    assert sum(result.configs == ("mtp",) for result in results) >= least_right
    assert sum("knob" in " ".join(result.configs) for result in results) <= most_wrong
    assert any("too few rows to be sure" in result.why for result in results) == (
        noise > 0.2
    )


def test_noise_alone_makes_no_classes() -> None:
    rows, costs = case.table(case.work, noise=0.15)
    assert strata_of(rows, costs).configs == ("*",)


def test_thousands_of_rows_are_explained_by_few_columns() -> None:
    columns_of_table = {**case.DECODE, "heads_kv": (1, 2, 4, 8), "layout": ("a", "b", "c"),
                        "tokens": (1, 16, 256)}
    rows, costs = case.table(case.decode, columns_of_table)
    assert len(rows) == 5184
    result = strata_of(rows[:4096], costs[:4096])
    assert {table_rules.columns((entry,))[0] for entry in result.configs} == {"block_size", "mtp"}


def test_core_classes_hold_most_of_the_time() -> None:
    rows, costs = case.table(lambda row: 100.0 if row["block_size"] == 16 else 1.0)
    result = strata_of(rows, costs)
    assert result.core == ("block_size<=16",)
    by_weight = strata_of(rows, costs, shares=[float(row["block_size"] == 1024) for row in rows],
                          configs=("block_size",))
    assert by_weight.core == ("block_size=1024",)


def test_configs_of_the_manifest_are_used_unchanged() -> None:
    result = strata_of(*case.table(case.decode), configs=("mtp", "context <= 1024"))
    assert result.configs == ("mtp", "context <= 1024") and len(result.classes) == 6
    assert result.why.startswith("by mtp, context <= 1024, as the manifest says; ")
