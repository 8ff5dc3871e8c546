"""The document of `kopt propose --json`: what a program needs in order to search a target's knobs.

docs/PROPOSE.md describes it field by field.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from engine.planning import kernel_routing
from engine.run.one_shot import OneShot
from harness.search.space.knobs import Knob
from harness.search.trials.trials import latency_kind
from harness.verdict import Config, LatencyKind, Value

VERSION = 1


class ProposedIncumbent(msgspec.Struct, frozen=True, kw_only=True):
    """The code that candidates are judged against: its `id` is that of a loop's first trial."""

    id: str
    tree: str
    config: Config
    source: str
    """The text of the document's `source` file."""


class ProposedKnob(msgspec.Struct, frozen=True, kw_only=True):
    """A knob: numbers have a `minimum` and a `maximum`; a `reserved` one keeps its default."""

    type: Literal["int", "float", "str"]
    choices: tuple[Value, ...]
    default: Value
    minimum: float | None = None
    maximum: float | None = None
    reserved: bool = False
    line: int
    desc: str = ""


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict decides by; times are `latency_us` and metrics as the benchmark names them.

    A candidate is kept if the whole confidence interval of its speedup is above 1x, a config class
    is faster and none loses more than `tolerance`. A gain below `margin`, for a benchmark below
    2 %, must show in two measurements. `margin` and `tolerance` are shares of one.
    """

    goal: Literal["lowest latency_us"] = "lowest latency_us"
    latency_kind: LatencyKind | None
    """None: nothing can be timed on this device."""
    metrics: tuple[str, ...] = ()
    score: str
    margin: float
    tolerance: float
    classes: dict[str, float]
    """Weights of a kernel's config classes in the score; a benchmark's are found when it runs."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A target's search space."""

    version: int = VERSION
    op: str
    kind: Literal["kernel", "command"]
    language: str
    device: str
    source: str
    entry: str = ""
    incumbent: ProposedIncumbent
    search_space: dict[str, ProposedKnob]
    constraints: tuple[str, ...]
    """Expressions over knobs that each valid configuration fulfils."""
    starts: tuple[Config, ...]
    """Configurations to try first, which the source or a tuning table names."""
    reserved: tuple[str, ...]
    size: int
    """Number of all configurations, valid or not."""
    objective: Objective
    edit: tuple[str, ...]
    frozen: tuple[str, ...]
    edit_surface: str
    routing: str
    """Into which languages coding agents would rewrite the kernel, and why not into others."""


def of(one_shot: OneShot) -> Proposal:
    """Return the document of an opened manifest. Raises InputError for a source without knobs."""
    judged, source = one_shot.judged, one_shot.source
    target, command = judged.target, judged.command
    default = {knob.name: knob.value for knob in source.knobs}
    decision = judged.manifest.decision
    return Proposal(
        op=target.op, kind="kernel" if command is None else "command", language=target.language,
        device=judged.device.name, source=source.path,
        entry=getattr(target, "entry", ""),
        incumbent=ProposedIncumbent(
            id=source.candidate_id(judged.base_tree, default), tree=judged.base_tree,
            config=default, source=source.text),
        search_space={knob.name: _knob(knob) for knob in source.knobs},
        constraints=tuple(each.text for each in source.requirements),
        starts=source.starts(),
        reserved=tuple(knob.name for knob in source.knobs if knob.reserved),
        size=math.prod(len(knob.choices) for knob in source.knobs if not knob.reserved),
        objective=Objective(
            latency_kind=latency_kind(judged.device, target.language) if command is None
            else "reported",
            metrics=() if command is None else tuple(
                metric.name for metric in command.metrics if metric.weight),
            score=decision.score if command is None else command.scoring,
            margin=decision.margin, tolerance=decision.tolerance,
            classes={entry.name: entry.weight for entry in getattr(target, "classes", ())}),
        edit=judged.edit, frozen=judged.frozen,
        edit_surface=f"any part of {', '.join(judged.edit)}; the reference, the task and the "
                     "benchmark are frozen",
        routing=str(kernel_routing.of_source(judged.manifest, target, source.text,
                                             judged.device.kind, judged.edit)))


def _knob(knob: Knob) -> ProposedKnob:
    numbers = [float(choice) for choice in knob.choices if not isinstance(choice, str)]
    is_number = len(numbers) == len(knob.choices)
    return ProposedKnob(
        type="str" if isinstance(knob.value, str) else "float" if isinstance(knob.value, float)
        else "int", choices=knob.choices, default=knob.value,
        minimum=min(numbers) if is_number else None, maximum=max(numbers) if is_number else None,
        reserved=knob.reserved, line=knob.line, desc=knob.note)
