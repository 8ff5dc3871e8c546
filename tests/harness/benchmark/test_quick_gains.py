"""The quick command decides alone only without a gain; a small gain must be measured again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.judge import judge as rulings
from harness.benchmark.runs import result_table, run_pairs, stopping_rule
from harness.benchmark.runs.result_table import ResultTable, TableReading
from harness.benchmark.runs.run_pairs import RunPair, Series
from harness.benchmark.spec.metric_units import RowCost
from harness.benchmark.verdict import benchmark_rows
from harness.timing.plan import Plan
from tests.support.benchmarks.benchmark_case import TARGET, judge, kernel, target

PLAN = Plan(looks=(3,), alpha=0.05)
Gains = Sequence[float]


def reading(costs: Sequence[float]) -> TableReading:
    rows = tuple((str(m), "0", repr(cost), repr(2 * cost)) for m, cost in enumerate(costs))
    return result_table.judge_table(
        ResultTable(columns=("m", "err", "fwd_us", "bwd_us"), rows=rows),
        TARGET,
        RowCost(TARGET),
        csv="b.csv",
    )


def pairs(*rows: Gains) -> list[RunPair]:
    """Return pairs with the given gains of each row."""
    return [RunPair(incumbent=reading([100.0 for _ in rows]),
                    candidate=reading([100.0 / (1 + row[at]) for row in rows]))
            for at in range(len(rows[0]))]


def built(*rows: Gains) -> Series:
    return run_pairs.match_pairs(TARGET, RowCost(TARGET), pairs(*rows))


def about(gain: float, noise: float = 0.0002) -> Gains:
    return gain, gain - noise, gain + noise


QUICK = [
    ("a clear gain", (about(0.5),), True),
    ("a small one", (about(0.03),), True),
    ("a gain within the noise", (about(0.1, 0.2),), True),
    ("a clear loss", (about(-0.2), about(-0.3)), False),
    ("a tie on the lower side", (about(-0.001), about(-0.002)), False),
    ("one class gains, all together lose a little", (about(0.03), about(-0.032)), True),
    ("one class may gain, all together lose", (about(0.02, 0.03), about(-0.03)), True),
    ("one class gains for sure where another loses much", (about(0.03), about(-0.4)), True),
    ("one class may gain where another loses too much", (about(0.02, 0.03), about(-0.4)), False),
    ("a class that cannot gain the margin", (about(0.001, 0.0015), about(-0.005)), False),
    ("a class that gains less than the margin for sure", (about(0.004), about(-0.02)), True),
]


@pytest.mark.parametrize(("rows", "left"), [case[1:] for case in QUICK], ids=[q[0] for q in QUICK])
def test_quick_command_decides_only_without_gain(rows: tuple[Gains, ...],
                                                 left: bool) -> None:
    assert stopping_rule.needs_full_benchmark(built(*rows), PLAN) is left


OUTSIDE = "def spoil(rows):\n    return [r | ({'fwd_us': 9 * float(r['fwd_us'])} if r['n'] == 64 " \
    "else {}) for r in rows]\n"


def test_quick_gain_can_lose_in_other_rows(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(50.0, OUTSIDE),
                    wanted=target(quick_command="python bench.py --quick"))
    assert {row.config_class: row.outcome for row in verdict.rows} == {
        "m=64 n=32": "faster", "m=128 n=32": "faster", "m=128 n=64": "slower",
        "m=256 n=64": "slower"}
    assert "the quick command shows a possible gain: judged by the full one" in verdict.notes
    assert rulings.rule(verdict, rulings.Policy()).kind == "reject"


@pytest.mark.slow
def test_quick_loss_needs_no_full_run(tmp_path: Path) -> None:
    verdict = judge(tmp_path, kernel(150.0), wanted=target(quick_command="python bench.py --quick"))
    assert len(verdict.rows) == 2 and not any(row.outcome == "faster" for row in verdict.rows)
    assert "no gain by the quick command, which was enough" in verdict.notes


def seen(first: Sequence[Gains], again: Sequence[Gains] | None) -> benchmark_rows.ModeResults:
    return benchmark_rows.ModeResults(
        target=TARGET,
        row_cost=RowCost(TARGET),
        plan=PLAN,
        mode=TARGET.full,
        pairs=pairs(*first),
        series=built(*first),
        repetition=built(*again) if again else None,
    )


SMALL = [about(0.05), about(-0.022)]
"""One class gains 5 %, the other loses 2.2 %; the mean gain is 1.34 %."""


@pytest.mark.parametrize(("again", "note"), [
    (None, "1.34% faster over all rows, but not when it was measured again"),
    ([about(0.05, 0.03), about(-0.05, 0.03)],
     "1.34% faster over all rows, but not when it was measured again"),
    (SMALL, "1.34% faster over all rows, and 1.34% when it was measured again")])
def test_overall_gain_under_2_percent_needs_a_repetition(
        again: Sequence[Gains] | None, note: str) -> None:
    assert stopping_rule.needs_repetition(built(*SMALL), PLAN)
    verdict = benchmark_rows.verdict_of(seen(SMALL, again))
    assert verdict.speedup == pytest.approx(1.0134, abs=1e-3)
    assert verdict.rows[0].outcome == "faster"
    assert (verdict.speedup_low or 0) > 1 if again is SMALL else (verdict.speedup_low or 0) <= 1
    assert note in verdict.notes


def test_unrepeated_gain_is_not_kept() -> None:
    first = [about(0.03), about(-0.005)]
    verdict = benchmark_rows.verdict_of(seen(first, [about(0.03, 0.02), about(-0.03, 0.02)]))
    ruling = rulings.rule(verdict, rulings.Policy(approval="auto"))
    assert (ruling.kind, verdict.rows[0].outcome) == ("tie", "faster")
    confirmed = benchmark_rows.verdict_of(seen(first, first))
    assert rulings.rule(confirmed, rulings.Policy(approval="auto")).kind == "keep"


@pytest.mark.parametrize("gain", [0.03, -0.2])
def test_larger_changes_need_no_repetition(gain: float) -> None:
    found = benchmark_rows.verdict_of(seen([about(gain)], None))
    assert (found.speedup_low or 0) > 1 if gain > 0 else (found.speedup_high or 2) < 1
    assert not found.notes and math.isclose(found.speedup or 0, 1 + gain, rel_tol=1e-3)
