"""A campaign with nothing to do says why, and what to add."""

from __future__ import annotations

import pytest

from engine.manifest.schema import PoolSpec
from engine.planning.planner import nothing_to_do
from engine.planning.survey import Survey
from harness.search.space.knobs import Knob

KNOB = Knob(name="A", line=1, value=1, choices=(1, 2))


def view(*knobs: Knob, unread: str = "") -> Survey:
    return Survey(knobs=knobs, bottlenecks=(), templates=(), inbox=(), unread=unread)


@pytest.mark.parametrize(("source", "language", "declared"), [
    ("scale.c", "c", "`#define TILE 32  // kopt: knob TILE in [16, 32]`"),
    ("pa.cu", "cuda", "`#define TILE 32  // kopt: knob TILE in [16, 32]`"),
    ("pa.py", "triton", "`BLOCK: tl.constexpr = 64  # kopt: knob BLOCK in [64, 128]`"),
    ("pa.py", "python", "`TILE = 32  # kopt: knob TILE in [16, 32]`"),
])
def test_a_search_without_knobs_says_how_they_are_declared(source: str, language: str,
                                                           declared: str) -> None:
    told = nothing_to_do(view(), PoolSpec(), source, language)
    assert told.startswith(f"{source} declares no knobs for a search: ")
    assert declared in told and "pool.cli" in told


def test_without_a_source_it_says_that() -> None:
    assert "names no single source file" in nothing_to_do(view(), PoolSpec(), "", "c") and \
        "kernel_source" in nothing_to_do(view(), PoolSpec(), "", "c")


def test_knobs_that_cannot_be_read_are_not_called_missing() -> None:
    unread = view(unread="scale.c:3: knob 'A' has no choices")
    told = nothing_to_do(unread, PoolSpec(), "scale.c", "c")
    assert "knobs cannot be read: scale.c:3: knob 'A' has no choices" in told
    assert "declares no" not in told


def test_reserved_knobs_are_none_that_a_search_moves() -> None:
    assert "declares no knobs for a search" in nothing_to_do(view(), PoolSpec(), "scale.c", "c")


def test_a_pool_that_does_not_search_says_what_to_add() -> None:
    told = nothing_to_do(view(KNOB), PoolSpec(backends=("inbox",)), "scale.c", "c")
    assert told == "no slot has anything to do: the inbox is empty; add `search` to " \
                   "pool.backends, or a worker under pool.cli"
    assert nothing_to_do(view(KNOB), PoolSpec(backends=("split",)), "scale.c", "c") == \
        "no slot has anything to do; add `search` to pool.backends, or a worker under pool.cli"


def test_what_was_done_already_is_no_lack() -> None:
    assert nothing_to_do(view(KNOB), PoolSpec(), "scale.c", "c") == "no slot has anything to do"
