"""A small PyTorch module in a file such as KernelBench's, with a faster ModelNew."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from engine.campaign import setup as campaigns_of
from engine.campaign.setup import Setup
from harness.formats import yaml_document
from harness.verdict import REFERENCE_LINE
from kopt_tui.snapshot.candidate_view import whole_view
from tests.support import repos
from tests.support.engines import campaigns

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(features))

    def forward(self, x):
        for _ in range(40):
            value = torch.exp(x * self.scale)
        return value


def get_inputs():
    return [torch.rand(256, 512)]


def get_init_inputs():
    return [512]
"""
FASTER = PROBLEM + """

class ModelNew(Model):
    def forward(self, x):
        return torch.exp(x * self.scale)
"""
TASK: dict[str, Any] = {
    "kind": "kernel", "op": "problem", "language": "python", "source": "problem.py",
    "entry": "Model", "reference": "kopt_task/reference.py:reference",
    "adapter": "kopt_task/adapter.py:call", "returns": True,
    "args": [{"name": "x", "dtype": "float32", "shape": [256, 512]}],
    "classes": [{"name": "full", "shape": {"batch": 256}}]}
MANIFEST: dict[str, Any] = {
    "target_op": "problem", "target": {"kind": "kernel", "task": "kopt_task/task.yaml"},
    "edit": ["problem.py"], "max_iterations": 1, "approval": "auto", "gpu": {"device": "cpu"},
    "decision": {"alpha": 0.2, "looks": 4}, "pool": {"slots": 1, "backends": ["inbox"]}}


def create(root: Path, **pool: Any) -> Setup:
    """Make a campaign on a project whose files are not meant to run; `pool` sets pool fields."""
    repos.project(root / "p", {
        "problem.py": PROBLEM, "kopt_task/adapter.py": "", "kopt_task/reference.py": "",
        "kopt_task/task.yaml": yaml_document.dump(TASK),
        "manifest.yaml": yaml_document.dump(MANIFEST | {"pool": MANIFEST["pool"] | pool})})
    return campaigns_of.create(root / "w", root / "p" / "manifest.yaml")


def hand_in(setup: Setup, text: str = FASTER) -> None:
    """Put a patch that replaces the problem's file by `text` into the inbox."""
    (setup.folder.inbox / "given.patch").write_text("".join(difflib.unified_diff(
        PROBLEM.splitlines(True), text.splitlines(True), "a/problem.py", "b/problem.py")))


def reference_lines(setup: Setup) -> list[str]:
    """Return the reference lines that are shown with the verdict on the kept candidate."""
    kept, = campaigns.candidates(setup, "kept")
    with campaigns.reading(setup) as reader:
        judged, = whole_view(reader, kept).verdicts
    assert judged.verdict is not None
    return [fact.detail for fact in judged.verdict.evidence if fact.kind == REFERENCE_LINE]
