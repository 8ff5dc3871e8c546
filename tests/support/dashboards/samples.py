"""Small valid records for tests that do not depend on their contents."""

from __future__ import annotations

from typing import Any

from engine.journal.records import Campaign, Candidate, Round, Slot
from harness.verdict import Verdict


def campaign(id: str = "rms", **fields: Any) -> Campaign:
    defaults: dict[str, Any] = {
        "path": f"/w/{id}", "op": "rmsnorm", "backend": "c", "lang": "c", "gpu": "cpu",
        "device": "cpu", "project": "/p", "base_commit": "b0", "best_commit": "b0",
        "state": "running",
    }
    return Campaign(id=id, **(defaults | fields))


def candidate(id: str = "c1", campaign: str = "rms", **fields: Any) -> Candidate:
    defaults: dict[str, Any] = {
        "round": 1, "slot": "fixed-1", "base_commit": "b0", "base_tree": "t0",
        "patch_path": "rounds/round-1/candidates/fixed-1/c1.patch", "patch_sha256": "0" * 64,
        "hypothesis": "unroll by 4", "bottleneck": "b1", "state": "captured", "created_at": 1.0,
    }
    return Candidate(id=id, campaign=campaign, **(defaults | fields))


def slot(name: str = "fixed-1", round: int = 1, campaign: str = "rms", **fields: Any) -> Slot:
    defaults: dict[str, Any] = {"kind": "fixed", "backend": "search"}
    return Slot(campaign=campaign, round=round, slot=name, **(defaults | fields))


def round_(n: int = 1, campaign: str = "rms") -> Round:
    return Round(campaign=campaign, n=n, scope="all", incumbent="b0", started_at=1.0)


def verdict(candidate: str = "c1", **fields: Any) -> Verdict:
    defaults: dict[str, Any] = {
        "valid": True, "correct": True, "latency_us": 10.0, "latency_kind": "measured-cpu",
        "speedup": 1.5, "speedup_low": 1.4, "speedup_high": 1.6, "candidate_id": candidate,
        "incumbent_tree": "t0",
    }
    return Verdict(**(defaults | fields))
