"""`triton-launch-knobs`: sizes, warps and stages that a launch fixes become knobs."""

from __future__ import annotations

import msgspec

from engine.transformations.transformation import (
    DoesNotApply,
    NewKnob,
    Transformation,
    Transformed,
)
from engine.transformations.triton.parsed_triton import ParsedTriton
from harness.search.space import knob_proposals
from harness.search.space.knob_edits import USUAL

_DEFAULTS = {"num_warps": 4, "num_stages": 3}
"""Triton's own values where a launch gives none."""


class LaunchKnobs(Transformation):
    name = "triton-launch-knobs"
    aim = "sizes of blocks, warps and stages of the launch, as knobs"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        if "kopt: knob" in source:
            raise DoesNotApply("the source already declares knobs")
        kernels = sorted({launch.kernel for launch in parsed.launches})
        proposals = knob_proposals.propose(source, "triton")
        if proposals:
            parsed = ParsedTriton(knob_proposals.declare(source, proposals, "triton"))
        _add_missing(parsed)
        changed = parsed.transformed(
            f"knobs for the launch of {', '.join(kernels) or 'a kernel'}")
        names = (*(each.name for each in proposals), *changed.knobs)
        if not names:
            raise DoesNotApply("no launch fixes a size, or an autotuner chooses all of them")
        return msgspec.structs.replace(changed, knobs=names)


def _add_missing(parsed: ParsedTriton) -> None:
    """Add knobs for options that launches leave to Triton's default."""
    knobs = dict[tuple[str, str], NewKnob]()
    for launch in parsed.launches:
        passed = {keyword.arg for keyword in launch.call.keywords}
        if not parsed.is_plain(launch.kernel) or None in passed:
            continue
        kernel = parsed.kernels[launch.kernel]
        wanted = ["num_warps", *(["num_stages"] if parsed.calls(kernel, "dot") else [])]
        missing = list[str]()
        for option in wanted:
            if option not in passed:
                key = launch.kernel, option
                if key not in knobs:
                    knobs[key] = parsed.knob("_".join(key).strip("_").upper(), _DEFAULTS[option],
                                             USUAL[option], f"of {launch.kernel}")
                missing.append(f"{option}={knobs[key].name}")
        if missing:
            parsed.add_argument(launch.call, ", ".join(missing))
