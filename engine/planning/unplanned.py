"""Why a round has nothing to do, and what would give it something."""

from __future__ import annotations

from engine.manifest.schema import PoolSpec
from engine.planning.survey import Survey

AGENT = "a worker under pool.cli"
DECLARED = {"triton": "BLOCK: tl.constexpr = 64  # kopt: knob BLOCK in [64, 128]",
            "python": "TILE = 32  # kopt: knob TILE in [16, 32]"}
DEFINED = "#define TILE 32  // kopt: knob TILE in [16, 32]"


def why(view: Survey, pool: PoolSpec, source: str, language: str) -> str:
    """Say it of a plan without a task; `source` is where knobs are looked for."""
    if "search" not in pool.backends:
        empty = ": no patch waits in the inbox" if "inbox" in pool.backends else ""
        return f"no slot has anything to do{empty}; add `search` to pool.backends, or {AGENT}"
    if view.knobs:
        return "no slot has anything to do"
    if view.unread:
        return f"its knobs cannot be read: {view.unread}; mend them, or add {AGENT}"
    if not source:
        return "the manifest names no one source that knobs are declared in; give it as " \
               f"kernel_source, or add {AGENT}"
    return f"{source} declares no knobs that a search could move: declare one there, such as " \
           f"`{DECLARED.get(language, DEFINED)}`, or add {AGENT}"
