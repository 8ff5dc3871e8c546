"""A campaign on a device kernel warns that it cannot split; only a launcher needs a toolkit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.campaign import setup
from engine.discovery.new import draft_kernel
from engine.journal.read import Reader
from harness.errors import EnvironmentFault
from harness.tasks.target import Target
from tests.support import repos
from tests.support.kernels import device_case
from tests.support.kernels.device_case import GLOBAL, LAUNCHER

MANIFEST = """target_op: twice
target: {kind: kernel, task: task.yaml}
project: .
"""


def create(root: Path, source: str, task: Target) -> setup.Setup:
    folder = device_case.tree(root / "project", source)
    (folder / "task.yaml").write_text(draft_kernel.dump_task(task))
    (folder / "manifest.yaml").write_text(MANIFEST)
    repos.git(folder, "init", "-q")
    repos.git(folder, "add", "-A")
    repos.git(folder, "commit", "-q", "-m", "start")
    return setup.create(root / "workspace", folder / "manifest.yaml")


def test_unavailable_split_is_a_warning(tmp_path: Path) -> None:
    made = create(tmp_path, GLOBAL, device_case.target())
    events = Reader(tmp_path / "workspace").events_of(made.id, "warning")
    assert any("backend split is not available" in str(event) for event in events), events


def test_campaign_on_a_launcher_is_not_created_without_its_toolkit(
        tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no hipcc found"):
        create(tmp_path, LAUNCHER, replace(device_case.target(launch=None), language="hip"))
