"""Config classes from real rows: which columns explain the stratification best, and why."""

from __future__ import annotations

import csv
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.discovery.classes import proposal, representative, strata
from engine.discovery.project import columns
from harness.benchmark.runs import run_pairs
from harness.benchmark.runs.result_table import ResultTable, TableReading, judge_table
from harness.benchmark.runs.run_pairs import BrokenIncumbent
from harness.benchmark.spec import table_rules
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric
from harness.benchmark.spec.metric_units import RowCost
from harness.benchmark.spec.validate import faults
from tests.support import strata_case as case
from tests.support.paths import DATA
from tests.support.strata_case import Row

RECORDED = DATA / "strata" / "conv_two_cards.csv"


def strata_of(
    rows: list[dict[str, object]], costs: list[float], **options: object
) -> strata.Strata:
    return strata.find_strata(case.looked(rows), costs, **options)  # type: ignore[arg-type]


def test_classes_are_columns_that_choose_a_path() -> None:
    """`block_size=1024, mtp=1` is one class; what only makes the work larger makes none."""
    result = strata_of(*case.table(case.decode))
    assert result.configs == ("block_size <= 64", "mtp")
    assert [row_class.name for row_class in result.classes] == [
        "block_size<=64 mtp=1", "block_size<=64 mtp=2", "block_size<=64 mtp=4",
        "block_size>64 mtp=1", "block_size>64 mtp=2", "block_size>64 mtp=4"]
    assert result.explained > 0.95
    assert "block_size cut at 64" in result.why and "in 6 classes of 144 rows" in result.why


def test_better_columns_win_over_common_ones() -> None:
    """If other columns explain performance stratification better, they are in as well."""
    given = {**case.DECODE, "swizzled": ("yes", "no")}
    result = strata_of(
        *case.table(lambda row: case.work(row) * (4 if row["swizzled"] == "no" else 1), given)
    )
    assert result.configs == ("swizzled",)


@pytest.mark.parametrize(("cost", "configs"), [
    pytest.param(lambda row: max(20.0, case.work(row)), (), id="a floor is seen as such"),
    pytest.param(lambda row: case.work(row) * (5 if case.number(row, "context") > 4096 else 1),
                 ("context <= 4096",), id="a path that long contexts take"),
    pytest.param(lambda row: case.work(row) * case.number(row, "head_size"), ("head_size",),
                 id="a choice of few values is no size"),
])
def test_size_is_cut_where_its_law_breaks(cost: object, configs: tuple[str, ...]) -> None:
    result = strata_of(*case.table(cost))  # type: ignore[arg-type]
    if configs:
        assert result.configs == configs
    else:
        assert any(entry.startswith(("context <=", "batch <=")) for entry in result.configs)


def test_one_law_for_all_rows_gives_one_class() -> None:
    result = strata_of(*case.table(case.work))
    assert result.configs == ("*",)
    assert [
        (row_class.name, len(row_class.rows), row_class.core) for row_class in result.classes
    ] == [("all", 144, True)]
    assert "no column explains" in result.why and "all rows are one class" in result.why


def test_ratio_to_another_implementation_shows_classes() -> None:
    """Both grow with the same odd law of the context; they differ by the block's size."""
    def odd(row: Row) -> float:
        return case.work(row) * (1 + (case.number(row, "context") == 1024))

    rows, costs = case.table(lambda row: odd(row) * (1.3 if row["block_size"] == 16 else 1.0))
    _, other = case.table(odd, seed=2)
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
    """Columns that are constant, unique in each row, or results of the run."""
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
def test_path_columns_differ_from_sizes(name: str, cells: list[str],
                                        role: str) -> None:
    assert columns.classify_column(name, cells).role == role


def test_single_row_and_column_are_tables() -> None:
    single = strata_of([{"m": 64}], [2.0])
    assert (single.configs, single.classes[0].name, single.classes[0].core) == (("*",), "all", True)
    column = strata_of([{"m": m} for m in (64, 64, 128, 128)], [1.0, 1.0, 9.0, 9.0])
    assert column.configs == ("m",)
    assert [kept.name for kept in column.classes] == ["m=64", "m=128"]


def test_few_unexplained_rows_are_classes_each() -> None:
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


@pytest.mark.parametrize(("power", "noise", "least", "most_wrong"), [
    (0.6, 0.1, 38, 2), (0.6, 0.3, 32, 4), (0.0, 0.3, 0, 5)])
def test_many_columns_of_few_rows_give_few_classes(
        power: float, noise: float, least: int, most_wrong: int) -> None:
    """Of 40 tables with 14 rows and nine columns few have classes by a column that does nothing;
    where rows are too few to say, that is told.
    """
    results = []
    for seed in range(40):
        drawn = random.Random(seed)
        rows: list[dict[str, object]] = [
            {"mtp": 1 + at % 2, **{f"knob_{name}": drawn.choice((3, 5)) for name in "abcdefgh"}}
            for at in range(14)]
        costs = [case.number(row, "mtp") ** power * drawn.lognormvariate(0, noise) for row in rows]
        results.append(strata_of(rows, costs))
    assert sum(result.configs == ("mtp",) for result in results) >= least
    assert sum("knob" in " ".join(result.configs) for result in results) <= most_wrong
    assert any("too few rows to be significant" in result.why for result in results) == (
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


def test_confirmed_classes_stay() -> None:
    result = strata_of(*case.table(case.decode), configs=("mtp", "context <= 1024"))
    assert result.configs == ("mtp", "context <= 1024") and len(result.classes) == 6
    assert result.why.startswith("from the manifest: mtp, context <= 1024; explains ")


def test_recorded_table_is_explained_by_its_tuning_parameters() -> None:
    """421 configurations of a convolution on two cards: shared memory and tiles explain them."""
    with RECORDED.open(newline="") as file:
        lines = list(csv.reader(file))
    target = CommandTarget(op="conv", command="python b.py", csv="b.csv",
                           metrics=(Metric(name="us_A4000"),),
                           check=CheckColumn(column="err", rule="== 0"))
    reading = judge_table(
        ResultTable(columns=tuple(lines[0]), rows=tuple(map(tuple, lines[1:]))),
        target,
        RowCost(target),
        csv="b.csv",
    )
    result = proposal.propose_classes(target, [reading])
    assert {"use_shmem", "tile_size_y"} <= set(table_rules.columns(result.strata.configs))
    assert len(proposal.read_rows(target, [reading]).others) == 1
    assert len(result.chosen.rows) <= 3 * len(result.strata.classes)
    assert "how that compares with the table's other times" in result.strata.why


TARGET = CommandTarget(op="pa", command="python b.py", csv="b.csv", metrics=(Metric(name="us"),),
                       check=CheckColumn(column="err", rule="== 0"))


def reading(rows: list[tuple[str, ...]], names: tuple[str, ...]) -> TableReading:
    return judge_table(
        ResultTable(columns=names, rows=tuple(rows)), TARGET, RowCost(TARGET), csv="b.csv"
    )


def test_several_runs_are_one_table_of_medians() -> None:
    """Columns that change between runs are not part of a configuration; row order is irrelevant."""
    names = ("mtp", "at", "err", "us")
    runs = [reading([("1", f"{run}.5", "0", f"{1 + run}"), ("2", f"{run}.7", "0", "9")], names)
            for run in range(3)]
    turned = TableReading(table=ResultTable(columns=names, rows=runs[1].table.rows[::-1]),
                     costs=runs[1].costs[::-1])
    seen = proposal.read_rows(TARGET, [runs[0], turned, runs[2]])
    assert seen.costs == (2.0, 9.0) and [column.role for column in seen.columns] == ["path", "none"]


def test_own_columns_are_no_other_implementation() -> None:
    """A rate beside a time, or another statistic of it; times of others are one, rates are not."""
    names = ("mtp", "err", "us", "us_min", "GB/s", "us_torch", "torch GB/s", "us_never")
    rows = [("1", "0", "2", "1", "7", "4", "9", "0"), ("2", "0", "3", "2", "7", "5", "9", "1")]
    assert proposal.read_rows(TARGET, [reading(rows, names)]).others == ((4.0, 5.0),)


@pytest.mark.parametrize(("rows", "part"), [
    ([("1", "0", "2"), ("3", "0", "2")], "missing: mtp=2; new: mtp=3"),
    ([("1", "1", "2"), ("2", "0", "2")], "row 1: err is '1', expected == 0"),
])
def test_inconsistent_runs_are_refused(rows: list[tuple[str, ...]], part: str) -> None:
    names = ("mtp", "err", "us")
    target_runs = [reading([("1", "0", "2"), ("2", "0", "2")], names), reading(rows, names)]
    with pytest.raises(BrokenIncumbent, match=part.split(";", maxsplit=1)[0]):
        proposal.read_rows(CommandTarget(**{**vars(TARGET), "configs": ("mtp",)}), target_runs)


@pytest.mark.parametrize(("configs", "names"), [
    (("mtp",), ["mtp=1", "mtp=2", "mtp=4"]),
    (("mtp <= 1",), ["mtp<=1", "mtp>1"]),
    (("mtp <= 2", "mtp <= 1"), ["mtp<=1", "1<mtp<=2", "mtp>2"]),
    (("mtp <= 1", "mtp"), ["mtp=1", "mtp=2", "mtp=4"]),
    (("mtp <= 1", "kind"), ["mtp<=1 kind=a", "mtp>1 kind=b"]),
    (("len <= 1e3",), ["len=auto", "len<=1000", "len>1000"]),
    (("*",), ["all"]),
])
def test_configs_entry_is_a_column_or_a_cut(configs: tuple[str, ...],
                                            names: list[str]) -> None:
    rows = [("1", "a", "auto"), ("2", "b", "1000"), ("4", "b", "1000.5")]
    grouped = table_rules.group_rows(configs, ("mtp", "kind", "len"), rows)
    assert list(grouped) == names
    assert sorted(row for inside in grouped.values() for row in inside) == [0, 1, 2]


def test_cut_of_a_metric_is_refused() -> None:
    target = CommandTarget(**{**vars(TARGET), "configs": ("us <= 5",)})
    assert ("'us <= 5' is a metric or the check") in [what for _, what, _ in faults(target)]


def test_verdict_has_the_proposed_classes() -> None:
    """Named alike from all rows and from a few of them: history goes by the name."""
    names = ("mtp", "context", "err", "us")
    rows = [(str(mtp), str(context), "0", f"{mtp * context}") for mtp in (1, 2)
            for context in (512, 1024, 4096, 16384)]
    target = CommandTarget(**{**vars(TARGET), "configs": ("mtp", "context <= 1024")})
    for some in (rows, rows[:2]):
        run = reading(some, names)
        made = run_pairs.match_pairs(
            target, RowCost(target), [run_pairs.RunPair(incumbent=run, candidate=run)]
        )
        proposed = proposal.propose_classes(target, [run]).strata.classes
        assert [row_class.name for row_class in made.classes] == [
            row_class.name for row_class in proposed
        ]
    assert [row_class.name for row_class in made.classes] == ["mtp=1 context<=1024"]


CELLS = st.sampled_from(["0", "1", "2", "16", "1024", "-3", "0.5", "1e9", "auto", "", "nan",
                         "[8, 9]"])
NAMES = ["block_size", "mtp", "context", "name", "us_other", "skew", "group_sizes", "m"]


@given(st.data())
def test_any_table_gets_classes(data: st.DataObject) -> None:
    """Classes hold each row once, under the names that a verdict uses; chosen shapes are rows."""
    n = data.draw(st.integers(1, 30))
    names = data.draw(st.lists(st.sampled_from(NAMES), unique=True))
    looked = [columns.classify_column(name, data.draw(st.lists(CELLS, min_size=n, max_size=n)))
              for name in names]
    costs = data.draw(st.lists(st.sampled_from([1e-9, 0.5, 1.0, 3.0, 1e12]),
                               min_size=n, max_size=n))
    result = strata.find_strata(looked, costs)
    assert result == strata.find_strata(looked, costs)
    assert sorted(row for row_class in result.classes for row in row_class.rows) == list(range(n))
    assert 0 <= result.explained <= 1 and any(row_class.core for row_class in result.classes)
    assert len(result.classes) <= max(strata.MOST_CLASSES, strata.FEW_ROWS)
    assert sum(row_class.share for row_class in result.classes) == pytest.approx(1)
    chosen = representative.choose_rows(result.classes, looked, costs)
    assert set(chosen.rows) <= set(range(n)) and chosen.rows == tuple(sorted(set(chosen.rows)))
    assert all(set(row_class.rows) & set(chosen.rows) for row_class in result.classes)
    if chosen.skewed is not None:
        assert chosen.skewed in chosen.rows
