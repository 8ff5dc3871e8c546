"""Transformations of launches: their constants as knobs, and fewer registers for each thread."""

from __future__ import annotations

import ast

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


class RegisterLimit(Transformation):
    name = "triton-register-limit"
    aim = "fewer registers a thread, so that a multiprocessor works on several rows at once"

    def apply(self, source: str) -> Transformed:
        parsed = ParsedTriton(source)
        why = "no kernel reduces rows that it holds in registers"
        limited = set[str]()
        for launch in parsed.launches:
            kernel = parsed.kernels[launch.kernel]
            passed = {keyword.arg: keyword.value for keyword in launch.call.keywords}
            if parsed.calls(kernel, "dot") or not any(
                    parsed.calls(kernel, name) for name in ("sum", "max", "min")):
                continue
            if not parsed.is_plain(launch.kernel) or {None, "maxnreg"} & passed.keys():
                why = "an autotuner, or the launch itself, already chooses the registers"
                continue
            knob = parsed.knob(f"{launch.kernel.strip('_').upper()}_REGISTERS",
                               _two_programs(passed.get("num_warps")),
                               (0, 32, 40, 64, 80, 96, 128, 168), "a thread, 0 for no limit")
            parsed.add_argument(launch.call, "**({} if torch.version.hip else "
                                             f'{{"maxnreg": {knob.name} or None}})')
            limited.add(launch.kernel)
        if not limited or "import torch\n" not in source:
            raise DoesNotApply(why if not limited else "the source does not import torch")
        return parsed.transformed(f"fewer registers a thread of {', '.join(sorted(limited))}")


def _two_programs(warps: ast.expr | None) -> int:
    """Return how many registers a thread may have where two programs share 65,536 of them."""
    given = warps.value if isinstance(warps, ast.Constant) else None
    return 1024 // given if isinstance(given, int) and given in (8, 16, 32) else 64


def _add_missing(parsed: ParsedTriton) -> None:
    """Add knobs for options that launches leave to Triton's default."""
    knobs = dict[tuple[str, str], NewKnob]()
    for launch in parsed.launches:
        passed = {keyword.arg for keyword in launch.call.keywords}
        if not parsed.is_plain(launch.kernel) or None in passed:
            continue
        kernel = parsed.kernels[launch.kernel]
        options = ["num_warps", *(["num_stages"] if parsed.calls(kernel, "dot") else [])]
        missing = list[str]()
        for option in options:
            if option not in passed:
                key = launch.kernel, option
                if key not in knobs:
                    knobs[key] = parsed.knob("_".join(key).strip("_").upper(), _DEFAULTS[option],
                                             USUAL[option], f"of {launch.kernel}")
                missing.append(f"{option}={knobs[key].name}")
        if missing:
            parsed.add_argument(launch.call, ", ".join(missing))
