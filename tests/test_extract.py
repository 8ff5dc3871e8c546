"""`execution_mode: workspace`: a minimal copy, its origin on record, the kernel's change back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import campaigns
import pytest
import repos
from command_line import kopt, told

from engine import extract
from engine.manifest import Manifest, TargetSpec
from harness.reported.target import Check, CommandTarget, Metric

FILES = ("kernel.py", "helper.py", "bench.py", "src/ops/a.cu", "src/ops/b.cu", "tests/test_a.py",
         "docs/guide.md", "web/app.js", "data/weights.bin", "tools/build.sh", "configs/one.yaml")


@pytest.mark.parametrize(("fields", "source", "kept"), [
    ({"edit": ("kernel.py",), "benchmark_command": "python bench.py"}, "kernel.py",
     {"kernel.py", "helper.py", "bench.py", "src/ops/a.cu", "src/ops/b.cu", "tests/test_a.py"}),
    ({"edit": ("src/ops/a.cu",), "benchmark_command": "python bench.py",
      "build_command": "sh tools/build.sh"}, "src/ops/a.cu",
     {"bench.py", "src/ops/a.cu", "src/ops/b.cu", "tests/test_a.py", "tools/build.sh"}),
    ({"edit": ("src/ops/a.cu",), "benchmark_command": "python bench.py",
      "extract": ("configs/*",)}, "src/ops/a.cu",
     {"bench.py", "src/ops/a.cu", "src/ops/b.cu", "tests/test_a.py", "configs/one.yaml"})])
def test_the_copy_has_what_the_kernel_and_its_commands_need(
        fields: dict[str, object], source: str, kept: set[str]) -> None:
    manifest = Manifest(target_op="x", target=TargetSpec(kind="command"), **fields)  # type: ignore[arg-type]
    task = CommandTarget(op="x", command="python bench.py", csv="b.csv", source=source,
                         check=Check(column="ok"), metrics=(Metric(name="us"),))
    assert set(extract.wanted(manifest, task, FILES)) == kept


def test_a_campaign_on_a_copy_leaves_the_project_alone_and_hands_over_a_patch(
        tmp_path: Path) -> None:
    manifest = campaigns.project(tmp_path / "p", execution_mode="workspace",
                                 pool={"slots": 1, "backends": ["inbox"]})
    (tmp_path / "p" / "src").mkdir()
    (tmp_path / "p" / "src" / "table.h").write_text("tracked, and ignored by a pattern\n")
    repos.git(tmp_path / "p", "add", "--force", "src/table.h")
    head = repos.commit(tmp_path / "p", {"web/app.js": "x\n", ".gitignore": "*.h\n"}, "more")
    setup = campaigns.campaigns.create(tmp_path / "w", manifest)
    campaigns.hand_in(setup)
    copied = setup.lineage.files(setup.lineage.base)
    assert "web/app.js" not in copied and "src/table.h" in copied
    assert (setup.folder.path / "ORIGIN_COMMIT").read_text().strip() == head
    campaigns.run(setup)
    assert campaigns.campaign(setup).speedup is not None, campaigns.campaign(setup).reason
    assert repos.git(tmp_path / "p", "branch", "--list", "optimize/*") == ""
    assert repos.git(tmp_path / "p", "status", "--porcelain") == ""
    refused = kopt("merge", workspace=tmp_path / "w")
    assert refused.returncode == 1 and "kopt merge --patch" in told(refused)
    patch = kopt("merge", "--patch", workspace=tmp_path / "w")
    assert patch.returncode == 0
    subprocess.run(["git", "apply", "--index"], cwd=tmp_path / "p", input=patch.stdout, text=True,
                   check=True)
    assert "PASSES 1 " in (tmp_path / "p" / "scale.c").read_text()
