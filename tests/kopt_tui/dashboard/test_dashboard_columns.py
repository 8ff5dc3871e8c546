"""A table drops columns rather than clip names to the same text."""

from __future__ import annotations

from typing import get_args

import pytest

from engine.journal.judged_rows import DecisionKind
from engine.journal.records import Bottleneck
from harness.verdict import Row
from kopt_tui.screens.campaigns import CampaignTable
from kopt_tui.snapshot.snapshot import CampaignRow, StreamLine
from kopt_tui.widgets.bottleneck_pane import BottleneckPane
from kopt_tui.widgets.classes_pane import class_lines
from kopt_tui.widgets.slots_pane import StreamPane
from kopt_tui.widgets.tones import Line
from tests.support.dashboards import samples

NAMES = ("mtp=1 context=256", "mtp=1 context=2048", "mtp=2 context=256")


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


def rows(*names: str, roofline: float | None = None) -> tuple[Row, ...]:
    return tuple(Row(config_class=name, correct=True, outcome="faster", latency_us=120.0,
                     incumbent_us=457.0, log_ratio=0.5, low=0.4, high=0.6, pairs=3,
                     pct_of_roofline=roofline) for name in names)


@pytest.mark.parametrize(("names", "roofline", "width", "headings"), [
    (("tall", "odd"), 50.0, 79, "class outcome speedup latency before roofline pairs"),
    (("tall", "odd"), 50.0, 60, "class outcome speedup latency"),
    (NAMES, None, 90, "class outcome speedup latency before roofline pairs"),
    (NAMES, None, 79, "class outcome speedup latency before pairs"),  # no roofline to show
    (NAMES, 50.0, 79, "class outcome speedup latency before roofline"),
    (NAMES, 50.0, 60, "class outcome speedup latency"),
    (NAMES, None, 45, "class outcome speedup"),
])
def test_columns_are_dropped_where_class_names_would_be_clipped_to_the_same_text(
        names: tuple[str, ...], roofline: float | None, width: int, headings: str) -> None:
    lines = [text(line) for line in class_lines(rows(*names, roofline=roofline), width)]
    assert lines[0].split() == headings.split()
    assert max(map(len, lines)) <= width
    if width > 45:
        assert [line.split("✓")[0].strip() for line in lines[1:]] == list(names)


@pytest.mark.parametrize(("width", "shown"), [
    (79, "paged_attention/mtp=1 context=2048"), (60, "… mtp=1 context=2048 12"),
    (200, "paged_attention/mtp=1 context=2048")])
def test_kernel_is_omitted_and_limiter_clipped_before_the_class_of_a_bottleneck(
        width: int, shown: str) -> None:
    bottlenecks = tuple(Bottleneck(
        campaign="c", round=2, rank=at, id=f"b2.{at}", kernel="paged_attention", config_class=name,
        limiter="share of the time", metric="% of the benchmark", value=12.34,
        detail="", advice="") for at, name in enumerate(NAMES, 1))
    pane = BottleneckPane()
    pane.content = bottlenecks
    line = text(pane.compose_lines(width)[1])
    assert shown in line and line.rstrip().endswith("12.34 % of the benchmark")
    assert len(line.rstrip()) <= width


@pytest.mark.parametrize("width", [40, 79, 160])
def test_campaigns_on_one_target_have_different_names_in_a_narrow_table(width: int) -> None:
    names = [f"heat_step_c_cpu_20261128{end}" for end in ("", "-2", "-3", "-12")]
    shown = [text(CampaignTable().row(CampaignRow(campaign=samples.campaign(id=name), waiting=0,
                                                  trend=()), width)) for name in names]
    assert len(set(shown)) == len(names)
    assert all(("heat_step_c_cpu_20261128" in line) is (width == 160) for line in shown[1:])


@pytest.mark.parametrize("width", [78, 160])
@pytest.mark.parametrize("kind", get_args(DecisionKind))
def test_outcome_and_speedup_of_a_verdict_are_whole(kind: str, width: int) -> None:
    speedup = "uncertain [0.99, 1.01]"
    line = text(StreamPane().row(StreamLine(
        key="1", at=0.0, slot="planned-1", candidate="c" * 40, purpose="verify", outcome=kind,
        speedup=speedup, reason="", hypothesis=""), width))
    assert f" {kind} " in line and speedup in line
