"""Every stage that a worker reports counts as running, so that a killed engine's slot ends."""

from __future__ import annotations

import ast

from engine.rounds.round import RUNNING_STAGES
from tests.support.paths import ROOT


def test_every_stage_that_a_worker_reports_is_one_of_a_running_slot() -> None:
    reported = {
        node.value for path in (*(ROOT / "engine" / "workers").rglob("*.py"),
                                ROOT / "engine" / "rounds" / "pool.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("tick") and call.args
        for node in ast.walk(call.args[0])
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value}
    assert len(reported) > 8 and reported <= {*RUNNING_STAGES}
