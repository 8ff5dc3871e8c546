"""Inputs of a round plan with three knobs and two bottlenecks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.journal.records import Bottleneck
from engine.manifest.pool_schema import CliSpec, PoolSpec
from engine.planning.bottlenecks import TunableBottleneck
from engine.planning.plan_inputs import PlanInputs
from engine.planning.survey import Survey
from engine.routing.op_class import UNKNOWN, OpClass
from engine.routing.rewrite_routes import Routing
from engine.workers.template import Offer
from harness.search.space.knobs import Knob

KNOBS = tuple(Knob(name=name, line=n, value=1, choices=(1, 2)) for n, name in enumerate("ABC", 1))
AGENT = CliSpec(name="agent", command="agent {prompt}")


def tunable(rank: int, *names: str, limiter: str = "memory") -> TunableBottleneck:
    return TunableBottleneck(knobs=names, bottleneck=Bottleneck(
        campaign="c", round=2, rank=rank, id=f"b2.{rank}", kernel="k", config_class="tall",
        limiter=limiter, metric="% of roofline", value=12.0, detail="slow", advice="move less"))


def plan_inputs(**fields: Any) -> PlanInputs:
    defaults: dict[str, Any] = {
        "campaign": "c", "round": 2, "slots": 4, "pool": PoolSpec(), "knobs": KNOBS,
        "bottlenecks": (tunable(1, "A", "B"), tunable(2, "C"))}
    given = defaults | fields
    surveyed = {name: given.pop(name) for name in Survey.__struct_fields__ if name in given}
    surveyed["templates"] = offers(surveyed.get("templates", ()))
    surveyed["routing"] = Routing(op=OpClass(UNKNOWN), source="unknown",
                                  routes=given.pop("routes", ()))
    return PlanInputs(**given, survey=Survey(**surveyed))


def offers(names: Sequence[str]) -> tuple[Offer, ...]:
    return tuple(Offer(name=name, hypothesis=f"template {name}") for name in names)
