"""Verdicts and trees of a candidate that is faster in some classes and slower in others."""

from __future__ import annotations

from typing import Any

from engine.journal.records import Candidate
from engine.judge.candidate import CandidateTree
from engine.repository.patches.patch import FilePatch, Patch
from engine.task import Task
from harness.verdict import Row, Verdict

TASK = Task(slot="planned-1", kind="planned", backend="cli", hypothesis="wide tiles",
            bottleneck="", seed=1, trials=0)


def verdict(**outcomes: Any) -> Verdict:
    return Verdict(valid=True, correct="broken" not in outcomes.values(), rows=tuple(
        Row(config_class=name.replace("_", "="), correct=outcome != "broken", outcome=outcome)
        for name, outcome in outcomes.items()))


def entry(*paths: str) -> CandidateTree:
    files = tuple(FilePatch(text="", old_path=path, new_path=path, names=(path,))
                  for path in paths)
    return CandidateTree(candidate=Candidate(
        campaign="k", id="c1", round=2, slot="p", base_commit="b", base_tree="t", patch_path="",
        patch_sha256="", hypothesis="unroll by four", bottleneck="", state="verified",
        created_at=0.0),
        patch=Patch(files=files), tree="t")
