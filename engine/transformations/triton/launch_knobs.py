"""`triton-launch-knobs`: sizes, warps and stages that a launch fixes become knobs."""

from __future__ import annotations

import re

from engine.transformations.transformation import (
    DoesNotApply,
    NewKnob,
    Replacement,
    Transformation,
    Transformed,
    free_name,
    replaced,
)
from engine.transformations.triton.parsed_triton import ParsedTriton
from harness.search.space import knob_proposals
from harness.search.space.knob_proposals import USUAL

_DEFAULTS = {"num_warps": 4, "num_stages": 3}
"""What Triton takes where a launch names no value."""


class LaunchKnobs(Transformation):
    name = "triton-launch-knobs"
    aim = "sizes of blocks, warps and stages of the launch, as knobs"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        if "kopt: knob" in source:
            raise DoesNotApply("the source declares knobs already")
        text, names = source, list[str]()
        if proposals := knob_proposals.propose(source, "triton"):
            text = knob_proposals.declare(source, proposals, "triton")
            names = [each.name for each in proposals]
        text, more = _with_missing(ParsedTriton(text), names)
        names += more
        if not names:
            raise DoesNotApply("no launch fixes a size, or an autotuner chooses all of them")
        return Transformed(source=text, knobs=tuple(names), what=(
            f"knobs for the launch of {', '.join(sorted(set(_launched(parsed))))}"))


def _launched(parsed: ParsedTriton) -> list[str]:
    return [launch.kernel for launch in parsed.launches]


def _with_missing(parsed: ParsedTriton, taken: list[str]) -> tuple[str, list[str]]:
    """Return the source with knobs for options that launches leave to Triton's default."""
    edits, knobs = list[Replacement](), dict[tuple[str, str], NewKnob]()
    for launch in parsed.launches:
        given = {keyword.arg for keyword in launch.call.keywords}
        if not parsed.is_plain(launch.kernel) or None in given:
            continue
        kernel = parsed.kernels[launch.kernel]
        wanted = ["num_warps", *(["num_stages"] if parsed.calls(kernel, "dot") else [])]
        text = ""
        for option in wanted:
            if option not in given:
                knob = knobs.setdefault((launch.kernel, option), NewKnob(
                    name=free_name(parsed.source, f"{launch.kernel}_{option}".strip("_").upper(),
                                   taken),
                    value=_DEFAULTS[option], choices=USUAL[option],
                    note=f"of {launch.kernel}"))
                text += f", {option}={knob.name}"
        at = parsed.span(launch.call)[1] - 1
        before = parsed.source[:at].rstrip()
        if text:
            text = text.removeprefix(",") if re.search(r"[,(]$", before) else text
            edits.append(Replacement(len(before), len(before), text))
    lines = [line for knob in knobs.values() for line in parsed.knob_lines(knob, in_kernels=False)]
    if not lines:
        return parsed.source, []
    return replaced(parsed.source, [parsed.before_functions(lines), *edits]), [
        knob.name for knob in knobs.values()]
