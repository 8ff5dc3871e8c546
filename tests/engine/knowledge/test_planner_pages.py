"""The planner's prompt has the pages about the target's op, device and language."""

from __future__ import annotations

from pathlib import Path

from engine.knowledge import page_library
from engine.planning import kernel_routing
from engine.routing.op_class import OpClass
from engine.routing.rewrite_routes import Routing
from tests.support.engines import campaigns


def test_planner_reads_pages_of_the_targets_op_and_language(tmp_path: Path) -> None:
    setup = campaigns.create(tmp_path, target_op="gemm")
    text = kernel_routing.knowledge(setup, Routing(op=OpClass("GEMM"), source="c"),
                                    campaigns.KERNEL)
    assert text.startswith(page_library.load(None).find("ops/gemm").text.strip())
    assert page_library.load(None).find("backend/c").text.strip() in text and "# Triton" not in text
    assert "# Pipelining" not in text  # that page is about GPUs
