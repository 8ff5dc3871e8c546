"""Config classes of benchmark tables: medians of runs, columns to ignore, entries of `configs`."""

from __future__ import annotations

import csv

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
from tests.support.paths import DATA

RECORDED = DATA / "strata" / "conv_two_cards.csv"


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
    assert "also against the table's other times" in result.strata.why


TARGET = CommandTarget(op="pa", command="python b.py", csv="b.csv", metrics=(Metric(name="us"),),
                       check=CheckColumn(column="err", rule="== 0"))


def reading(rows: list[tuple[str, ...]], names: tuple[str, ...]) -> TableReading:
    return judge_table(
        ResultTable(columns=names, rows=tuple(rows)), TARGET, RowCost(TARGET), csv="b.csv"
    )


def test_several_runs_are_one_table_of_medians() -> None:
    """Columns that change between runs identify no row; rows may come in any order."""
    names = ("mtp", "at", "err", "us")
    runs = [reading([("1", f"{run}.5", "0", f"{1 + run}"), ("2", f"{run}.7", "0", "9")], names)
            for run in range(3)]
    reordered = TableReading(table=ResultTable(columns=names, rows=runs[1].table.rows[::-1]),
                             costs=runs[1].costs[::-1])
    seen = proposal.read_rows(TARGET, [runs[0], reordered, runs[2]])
    assert seen.costs == (2.0, 9.0) and [column.role for column in seen.columns] == ["path", "none"]


def test_other_columns_of_the_kernel_itself_are_not_another_implementation() -> None:
    """Only times of other implementations count, not their rates or the kernel's own columns."""
    names = ("mtp", "err", "us", "us_min", "GB/s", "us_torch", "torch GB/s", "us_never")
    rows = [("1", "0", "2", "1", "7", "4", "9", "0"), ("2", "0", "3", "2", "7", "5", "9", "1")]
    assert proposal.read_rows(TARGET, [reading(rows, names)]).others == ((4.0, 5.0),)


@pytest.mark.parametrize(("rows", "part"), [
    ([("1", "0", "2"), ("3", "0", "2")], "missing: mtp=2; new: mtp=3"),
    ([("1", "1", "2"), ("2", "0", "2")], "row 1: err is '1', expected == 0"),
])
def test_run_with_other_rows_or_wrong_results_is_refused(
        rows: list[tuple[str, ...]], part: str) -> None:
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
def test_configs_entry_is_a_column_or_a_threshold(
        configs: tuple[str, ...], names: list[str]) -> None:
    rows = [("1", "a", "auto"), ("2", "b", "1000"), ("4", "b", "1000.5")]
    grouped = table_rules.group_rows(configs, ("mtp", "kind", "len"), rows)
    assert list(grouped) == names
    assert sorted(row for inside in grouped.values() for row in inside) == [0, 1, 2]


def test_threshold_on_a_metric_is_refused() -> None:
    target = CommandTarget(**{**vars(TARGET), "configs": ("us <= 5",)})
    assert ("'us <= 5' is a metric or the check") in [what for _, what, _ in faults(target)]


def test_verdict_has_the_proposed_classes() -> None:
    """A class has the same name whether all rows were run or a few: history finds it by name."""
    names = ("mtp", "context", "err", "us")
    rows = [(str(mtp), str(context), "0", f"{mtp * context}") for mtp in (1, 2)
            for context in (512, 1024, 4096, 16384)]
    target = CommandTarget(**{**vars(TARGET), "configs": ("mtp", "context <= 1024")})
    for run_rows in (rows, rows[:2]):
        run = reading(run_rows, names)
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
    classified = [columns.classify_column(name, data.draw(st.lists(CELLS, min_size=n, max_size=n)))
                  for name in names]
    costs = data.draw(st.lists(st.sampled_from([1e-9, 0.5, 1.0, 3.0, 1e12]),
                               min_size=n, max_size=n))
    result = strata.find_strata(classified, costs)
    assert result == strata.find_strata(classified, costs)
    assert sorted(row for row_class in result.classes for row in row_class.rows) == list(range(n))
    assert 0 <= result.explained <= 1 and any(row_class.core for row_class in result.classes)
    assert len(result.classes) <= max(strata.MOST_CLASSES, strata.FEW_ROWS)
    assert sum(row_class.share for row_class in result.classes) == pytest.approx(1)
    chosen = representative.choose_rows(result.classes, classified, costs)
    assert set(chosen.rows) <= set(range(n)) and chosen.rows == tuple(sorted(set(chosen.rows)))
    assert all(set(row_class.rows) & set(chosen.rows) for row_class in result.classes)
    if chosen.skewed is not None:
        assert chosen.skewed in chosen.rows
