"""Guards that a coding agent sees no GPU unless the manifest allows it."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest

from engine.manifest.schema import CliSpec
from engine.task import Task
from engine.verify.fleet import Fleet
from engine.workers.cli import HIDDEN, CliWorker
from engine.workers.protocol import LOG, WorkerBench
from harness.isolation.zygote_client import WarmStart
from tests.support import campaigns

SHOW = "import json, os; print(json.dumps({n: v for n, v in os.environ.items() if 'VISIBLE' in n}))"


@pytest.mark.parametrize(("fields", "sees"), [
    ({}, HIDDEN), ({"gpu": True}, {"CUDA_VISIBLE_DEVICES": "3"}),
    ({"env": ("CUDA_VISIBLE_DEVICES",)}, {**HIDDEN, "CUDA_VISIBLE_DEVICES": "3"})],
    ids=["by default none", "gpu: true", "an allowed variable"])
def test_agent_sees_gpus_only_if_manifest_allows(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object],
        sees: dict[str, str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    setup = campaigns.create(tmp_path / "campaign")
    (tree := tmp_path / "tree").mkdir()
    (tmp_path / "show.py").write_text(SHOW)
    bench = WorkerBench(
        target=setup.target,
        device=setup.device,
        worktree=str(tree),
        baseline=str(tree),
        fleet=Fleet([(setup.device, WarmStart(None))], retry_s=600.0, limit_s=3600.0),
        base_commit="",
        scratch=str(tmp_path / "scratch"),
    )
    command = f"test -s {{prompt}} && {sys.executable} {tmp_path}/show.py"
    worker = CliWorker([CliSpec(name="agent", command=command, **fields)])  # type: ignore[arg-type]
    task = Task(slot="agent", kind="planned", backend="cli", option="agent", hypothesis="h",
                bottleneck="", seed=1, trials=1)
    report = worker.work(task, bench, lambda *_: None, threading.Event())
    assert report.ok, report
    assert json.loads((Path(bench.scratch) / LOG).read_text()) == sees
