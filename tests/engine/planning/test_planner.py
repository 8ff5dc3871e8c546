"""If a plan has no task, its reason says why and what to add."""

from __future__ import annotations

import msgspec
import pytest

from engine.manifest.pool_schema import PoolSpec
from engine.planning.survey import Survey, nothing_to_do
from harness.search.space.knobs import Knob

KNOB = Knob(name="A", line=1, value=1, choices=(1, 2))


def survey(*knobs: Knob, unread: str = "") -> Survey:
    return Survey(knobs=knobs, bottlenecks=(), templates=(), inbox=(), unread=unread)


@pytest.mark.parametrize(("source", "language", "declared"), [
    ("scale.c", "c", "`#define TILE 32  // kopt: knob TILE in [16, 32]`"),
    ("pa.cu", "cuda", "`#define TILE 32  // kopt: knob TILE in [16, 32]`"),
    ("pa.py", "triton", "`BLOCK: tl.constexpr = 64  # kopt: knob BLOCK in [64, 128]`"),
    ("pa.py", "python", "`TILE = 32  # kopt: knob TILE in [16, 32]`"),
])
def test_source_without_knobs_shows_how_to_declare_them(source: str, language: str,
                                                        declared: str) -> None:
    reason = nothing_to_do(survey(), PoolSpec(), source, language)
    assert reason.startswith(f"{source} declares no knobs for a search: ")
    assert declared in reason and "pool.cli" in reason


def test_plan_without_a_source_says_to_name_one() -> None:
    assert "edit matches several files" in nothing_to_do(survey(), PoolSpec(), "", "c") and \
        "kernel_source" in nothing_to_do(survey(), PoolSpec(), "", "c")


def test_unreadable_knobs_are_not_called_missing() -> None:
    unread = survey(unread="scale.c:3: knob 'A' has no choices")
    reason = nothing_to_do(unread, PoolSpec(), "scale.c", "c")
    assert "knobs cannot be read: scale.c:3: knob 'A' has no choices" in reason
    assert "declares no" not in reason


def test_rewrites_that_cannot_be_timed_are_the_reason_and_not_missing_knobs() -> None:
    view = msgspec.structs.replace(survey(), untimed=2)
    reason = nothing_to_do(view, PoolSpec(), "gate.py", "python")
    assert reason.startswith("2 rewrites of gate.py found correct, but without a GPU no ")
    assert "declares no" not in reason and "pool.cli" in reason


def test_reserved_knobs_are_not_searched() -> None:
    assert "declares no knobs for a search" in nothing_to_do(survey(), PoolSpec(), "scale.c", "c")


def test_pool_without_search_names_what_to_add() -> None:
    reason = nothing_to_do(survey(KNOB), PoolSpec(backends=("inbox",)), "scale.c", "c")
    assert reason == "no slot has anything to do: the inbox is empty; add `search` to " \
                   "pool.backends, or a worker under pool.cli, or pool.agent"
    assert nothing_to_do(survey(KNOB), PoolSpec(backends=("split",)), "scale.c", "c") == \
        "no slot has anything to do; add `search` to pool.backends, or a worker under pool.cli, " \
        "or pool.agent"


def test_finished_work_needs_nothing_added() -> None:
    assert nothing_to_do(survey(KNOB), PoolSpec(), "scale.c", "c") == "no slot has anything to do"
