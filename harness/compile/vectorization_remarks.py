"""Read the C compiler's remarks: which loops of a kernel it vectorised, and why not the others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.compile.c_compiler import BUILD_LIMITS, compiler
from harness.formats.text import plain
from harness.isolation import guard
from harness.isolation.device_lock import Turnstile
from harness.isolation.guard import Confine
from harness.tasks.target import Target

_REMARK = re.compile(
    r"^(?P<file>[^:\s]+):(?P<line>\d+):\d+: (?P<kind>optimized|missed): +(?P<text>.*)$")
_VECTORS = re.compile(r"loop vectorized using (?P<bytes>\d+) byte vectors")
_REASON = re.compile(r"not vectorized: *(?P<why>.*)$")


@dataclass(frozen=True, kw_only=True)
class Remark:
    """One loop, by its line: its widest vectors (0: none), and why it has none."""

    line: int
    vector_bytes: int
    why: str = ""

    @property
    def is_nest(self) -> bool:
        """Whether it encloses other loops, whose remarks are more useful."""
        return "nest" in self.why


def of_source(target: Target, tree: Path, scratch: Path, *,
              yields: Turnstile | None = None) -> tuple[Remark, ...]:
    """Return gcc's remarks on the target's loops, by line; empty where the compiler gives none."""
    scratch.mkdir(parents=True, exist_ok=True)
    argv = [compiler(), *target.flags, "-fopt-info-vec-optimized-missed", "-c", "-fPIC", "-o",
            str(scratch / "remarks.o"), target.source]
    outcome = guard.run(argv, cwd=tree, env=guard.clean_env(home=scratch), limits=BUILD_LIMITS,
                        confine=Confine(writable=(str(scratch),), cards=False), yields=yields)
    return parse(outcome.stderr.decode(errors="replace"), Path(target.source).name)


def parse(text: str, source: str) -> tuple[Remark, ...]:
    """Parse `-fopt-info-vec` output; the widest of a loop's versions counts."""
    loops: dict[int, int] = {}
    reasons: dict[int, str] = {}
    loop = 0
    for raw in text.splitlines():
        match = _REMARK.match(raw)
        if match is None or Path(match["file"]).name != source:
            continue
        line, message = int(match["line"]), match["text"]
        if "couldn't vectorize loop" in message:
            loops.setdefault(line, 0)
            loop = line
        elif vectors := _VECTORS.search(message):
            loops[line] = max(loops.get(line, 0), int(vectors["bytes"]))
        elif (why := _REASON.search(message)) and loop:
            reasons.setdefault(loop, plain(why["why"], 120))
    return tuple(Remark(line=line, vector_bytes=width, why="" if width else reasons.get(line, ""))
                 for line, width in sorted(loops.items()))
