"""Rows of uneven groups get classes of their own, whatever columns `configs` names."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.discovery.classes import class_baseline, proposal, strata
from engine.discovery.classes.proposal import ClassProposal
from engine.manifest import load
from harness.benchmark.runs.result_table import ResultTable, judge_table
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric
from harness.benchmark.spec.metric_units import RowCost
from tests.support.benchmarks import strata_case as case

EXPERTS, TOKENS = (8, 64), (512, 2048, 8192)
MANIFEST = """target_op: moe
benchmark_command: python bench.py
target:
  kind: command
  csv: out.csv
  check: err == 0
  metrics: [us]
  configs: [experts]
"""


def proposed(skew_column: str, cells: tuple[str, ...],
             configs: tuple[str, ...] = ()) -> ClassProposal:
    """Propose classes from two runs of a grouped matmul, a row for each cell of the column."""
    rows = [{"experts": experts, "tokens": tokens, skew_column: cell, "err": 0,
             "us": tokens * (4 if experts == 64 else 1)}
            for experts in EXPERTS for tokens in TOKENS for cell in cells]
    target = CommandTarget(op="moe", command="python bench.py", csv="out.csv", configs=configs,
                           metrics=(Metric(name="us"),),
                           check=CheckColumn(column="err", rule="== 0"))
    readings = [judge_table(
        ResultTable(columns=tuple(rows[0]), rows=tuple(
            tuple(str(cell) for cell in row.values()) for row in rows)),
        target, RowCost(target), csv="out.csv") for _ in range(2)]
    return proposal.propose_classes(target, readings)


@pytest.mark.parametrize(("column", "cells", "entry", "skewed"), [
    ("distribution", ("uniform", "skewed"), "distribution", "distribution=skewed"),
    ("skew", ("0", "0.8"), "skew <= 0", "skew>0")])
@pytest.mark.parametrize("configs", [(), ("experts",), ("*",)])
def test_uneven_groups_are_classes_of_their_own(
        column: str, cells: tuple[str, ...], entry: str, skewed: str,
        configs: tuple[str, ...]) -> None:
    proposal_made = proposed(column, cells, configs)
    assert entry in proposal_made.strata.configs
    uneven = [stratum for stratum in proposal_made.strata.classes if skewed in stratum.name]
    assert sum(len(stratum.rows) for stratum in uneven) == len(EXPERTS) * len(TOKENS)
    assert any(dict(shape)[column] == cells[1] for shape in map(_cells, proposal_made.shapes))


def test_reason_says_that_no_other_column_explains_the_times() -> None:
    rows = [{"m": 64 + number, "distribution": ("uniform", "skewed")[number % 2]}
            for number in range(20)]
    result = strata.find_strata(case.columns_of(rows), [1.0] * 20)
    assert len(result.classes) == 2 and "each row" not in result.why
    assert result.why.startswith("no other column tells which rows differ in time"), result.why


def _cells(shape: str | dict[str, int]) -> dict[str, str]:
    if isinstance(shape, dict):
        return {name: str(value) for name, value in shape.items()}
    return dict(part.split("=", 1) for part in shape.split(" "))


def test_column_of_group_sizes_is_a_key_even_if_configs_omits_it() -> None:
    """A column of lists that differ in every row tells the quick script which row is skewed."""
    table = case.columns_of([{"m": 64 * (1 + at), "group_sizes": cell} for at, cell in enumerate(
        ("[64, 64]", "[96, 32]", "[128, 0]", "[72, 56]"))])
    assert "group_sizes" in strata.find_strata(table, [1.0] * 4, configs=("m",)).keys


def test_written_configs_gain_the_skew_column_unless_core_is_written(tmp_path: Path) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text(MANIFEST)
    proposal_made = proposed("distribution", ("uniform", "skewed"), ("experts",))
    assert class_baseline.write_classes(tmp_path, file, proposal_made).target.configs == (
        "experts", "distribution")
    file.write_text(MANIFEST + "  core: [experts=8]\n")
    kept = class_baseline.write_classes(tmp_path, file, proposal_made).target
    assert (kept.configs, kept.core) == (("experts",), ("experts=8",))
    assert load.load(file).target == kept
