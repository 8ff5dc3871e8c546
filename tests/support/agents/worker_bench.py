"""A worker's task and its bench, with a fleet of one card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.task import Task
from engine.verify.fleet import Fleet
from engine.workers.protocol import WorkerBench
from harness.benchmark.spec.command_target import CommandTarget
from harness.devices.device import Device
from harness.isolation.zygote_client import WarmStart
from harness.tasks.target import Target


def task(backend: str, **fields: Any) -> Task:
    given: dict[str, Any] = {"slot": "s", "kind": "planned", "hypothesis": "h", "bottleneck": "",
                             "seed": 1, "trials": 1}
    return Task(backend=backend, **(given | fields))


def bench(target: Target | CommandTarget, device: Device, tree: Path, scratch: Path,
          **fields: Any) -> WorkerBench:
    """Return a bench whose worktree and baseline are `tree`."""
    given: dict[str, Any] = {
        "worktree": str(tree), "baseline": str(tree), "base_commit": "",
        "fleet": Fleet([(device, WarmStart(None))], retry_s=600.0, limit_s=3600.0)}
    return WorkerBench(target=target, device=device, scratch=str(scratch), **(given | fields))
