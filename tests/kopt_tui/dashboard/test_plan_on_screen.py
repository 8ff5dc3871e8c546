"""A round's plan and the routing of its rewrites are recorded and shown."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.journal.decoded import plan_event
from engine.journal.decoded.plan_event import RoundPlan
from engine.journal.read import Reader
from engine.journal.records import Bottleneck
from kopt_tui.snapshot.snapshot import Focus
from kopt_tui.snapshot.snapshot_builder import Builder
from kopt_tui.widgets.bottleneck_pane import BottleneckPane
from tests.support.dashboards import records_case as case

PLAN = RoundPlan(round=2, planned=4, rewrites=1, fixed=1,
                 split="weights: planned 1.45, others 1.00",
                 planned_weight=1.45, fixed_weight=1.0,
                 routing="routed to TileLang: attention; FlyDSL is not installed",
                 model="the model planned 3 ideas of 4; 1 repeat left out")


def test_snapshot_has_the_plan_and_the_routing(tmp_path: Path) -> None:
    _, writer = case.begin(tmp_path)
    writer.event("rms", plan_event.KIND, "2", **msgspec.to_builtins(PLAN))
    view = Builder(tmp_path, Reader(tmp_path), lambda: 0.0).snapshot(Focus(campaign="rms")).view
    assert view is not None and view.routing == PLAN.routing
    assert view.plan == f"4 planned, 1 rewrite, 1 fixed; {PLAN.model}; " \
                        "weights: planned 1.45, others 1.00"
    assert view.log[-1].text == f"plan  round 2: {PLAN.split}; {PLAN.model}; {PLAN.routing}"


def test_bottleneck_pane_shows_the_routing() -> None:
    pane = BottleneckPane()
    pane.routing = PLAN.routing
    assert PLAN.routing in "".join(text for line in pane.compose_lines(100) for text, _ in line)


def test_bottleneck_pane_shows_a_value_before_its_unit() -> None:
    pane = BottleneckPane()
    pane.content = (Bottleneck(
        campaign="rms", round=2, rank=1, id="b1", kernel="k", config_class="", limiter="memory",
        metric="% of roofline", value=19.67, detail="", advice=""),)
    assert "19.67 % of roofline" in "".join(text for text, _ in pane.compose_lines(100)[0])


def test_bottleneck_pane_shows_equal_advice_once() -> None:
    pane = BottleneckPane()
    pane.content = tuple(Bottleneck(
        campaign="rms", round=2, rank=n, id=f"b{n}", kernel="k", config_class=name,
        limiter="memory", metric="", value=None, detail=f"{name} is slow", advice="read less")
        for n, name in enumerate(("tall", "odd"), 1))
    for pane.wraps in (False, True):
        text = "\n".join("".join(text for text, _ in line) for line in pane.compose_lines(80))
        assert text.count("read less") == 1 and "→ as above" in text
