"""`execution_mode: workspace` runs on a minimal copy and hands back the kernel's patch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engine.campaign import workspace_copy
from engine.globs import reaches
from engine.manifest.schema import Manifest, TargetSpec
from engine.repository.project import find
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric
from tests.support import repos
from tests.support.engines import campaigns, instant_verdicts
from tests.support.programs.command_line import error_text, kopt

FILES = ("kernel.py", "helper.py", "bench.py", "src/ops/a.cu", "src/ops/b.cu", "tests/test_a.py",
         "docs/guide.md", "web/app.js", "data/weights.bin", "tools/build.sh", "configs/one.yaml")


@pytest.mark.parametrize(("fields", "source", "expected"), [
    ({"edit": ("kernel.py",), "benchmark_command": "python bench.py"}, "kernel.py",
     {"kernel.py", "helper.py", "bench.py", "src/ops/a.cu", "src/ops/b.cu", "tests/test_a.py"}),
    ({"edit": ("src/ops/a.cu",), "benchmark_command": "python bench.py",
      "build_command": "sh tools/build.sh"}, "src/ops/a.cu",
     {"bench.py", "src/ops/a.cu", "src/ops/b.cu", "tests/test_a.py", "tools/build.sh"}),
    ({"edit": ("src/ops/a.cu",), "benchmark_command": "python bench.py",
      "extract": ("configs/*",)}, "src/ops/a.cu",
     {"bench.py", "src/ops/a.cu", "src/ops/b.cu", "tests/test_a.py", "configs/one.yaml"})])
def test_copy_has_files_of_kernel_and_commands(
        fields: dict[str, object], source: str, expected: set[str]) -> None:
    manifest = Manifest(target_op="x", target=TargetSpec(kind="command"), **fields)  # type: ignore[arg-type]
    task = CommandTarget(op="x", command="python bench.py", csv="b.csv", source=source,
                         check=CheckColumn(column="ok"), metrics=(Metric(name="us"),))
    assert set(workspace_copy.files_to_copy(manifest, task, FILES)) == expected


def test_campaign_on_copy_hands_over_patch_and_leaves_project_alone(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts.install(monkeypatch)
    manifest = campaigns.project(tmp_path / "p", execution_mode="workspace",
                                 pool={"slots": 1, "backends": ["inbox"]})
    (tmp_path / "p" / "src").mkdir()
    (tmp_path / "p" / "src" / "table.h").write_text("tracked, and ignored by a pattern\n")
    repos.git(tmp_path / "p", "add", "--force", "src/table.h")
    head = repos.commit(tmp_path / "p", {"web/app.js": "x\n", ".gitignore": "*.h\n"}, "more")
    setup = campaigns.campaigns.create(tmp_path / "w", manifest)
    campaigns.hand_in(setup)
    copied = setup.repo.files(setup.repo.base)
    assert "web/app.js" not in copied and "src/table.h" in copied
    assert (setup.folder.path / "ORIGIN_COMMIT").read_text().strip() == head
    campaigns.run(setup)
    assert campaigns.campaign(setup).speedup is not None, campaigns.campaign(setup).reason
    assert repos.git(tmp_path / "p", "branch", "--list", "optimize/*") == ""
    assert repos.git(tmp_path / "p", "status", "--porcelain") == ""
    refused = kopt("merge", workspace=tmp_path / "w")
    assert refused.returncode == 1 and "kopt merge --patch" in error_text(refused)
    patch = kopt("merge", "--patch", workspace=tmp_path / "w")
    assert patch.returncode == 0
    subprocess.run(["git", "apply", "--index"], cwd=tmp_path / "p", input=patch.stdout, text=True,
                   check=True)
    assert "PASSES 1 " in (tmp_path / "p" / "scale.c").read_text()


# submodules

SUBMODULES = ("third_party/fmt", "third_party/json", "src/dep", "bench")
TREE = ("src/ops/a.cu", "src/.gitattributes", "docs/.gitattributes", ".gitattributes", ".gitignore",
        ".gitmodules", "README.md", *SUBMODULES)
ALWAYS = {"src/ops/a.cu", "src/.gitattributes", ".gitattributes", ".gitignore", ".gitmodules",
          "src/dep", "bench"}


@pytest.mark.parametrize(("fields", "added"), [
    ({}, set()),
    ({"extract": ("third_party/fmt/include/**",)}, {"third_party/fmt"}),
    ({"extract": ("third_party/fmt",)}, {"third_party/fmt"}),
    ({"extract": ("third_party/*",)}, {"third_party/fmt", "third_party/json"}),
    ({"frozen": ("third_party/[jk]son/x.h",)}, {"third_party/json"}),
    ({"frozen": ("third_party/*.h",)}, set()),
    ({"build_command": "cc -Ithird_party/fmt/include src/ops/a.cu"}, {"third_party/fmt"}),
    ({"test_command": "sh ./third_party/json/run.sh"}, {"third_party/json"}),
    ({"test_command": "sh third_party/fmt2/run.sh other/third_party/json"}, set()),
])
def test_submodule_is_copied_if_it_or_a_path_below_is_needed(fields: dict[str, object],
                                                             added: set[str]) -> None:
    manifest = Manifest(target_op="x", edit=("src/ops/a.cu",), target=TargetSpec(kind="command"),
                        benchmark_command="python run.py", **fields)  # type: ignore[arg-type]
    task = CommandTarget(op="x", command="python run.py", csv="b.csv", source="src/ops/a.cu",
                         check=CheckColumn(column="ok"), metrics=(Metric(name="us"),))
    assert set(workspace_copy.files_to_copy(manifest, task, TREE, SUBMODULES)) == ALWAYS | added


@pytest.mark.parametrize(("glob", "found"), [
    ("a/b/c.h", True), ("a/b", True), ("a", True), ("./a/b/", True), ("**/c.h", True),
    ("a/**", True), ("*/b/c", True), ("a/x/c.h", False), ("x/**", False), ("b/c.h", False),
    ("a/*.h", False), ("a/b?", False)])
def test_glob_reaches_a_folder_if_it_may_match_it_or_a_path_below(glob: str, found: bool) -> None:
    assert reaches("a/b", (glob,)) is found


def test_copy_has_object_format_of_project(tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    repos.git(user, "init", "-q", "-b", "main", "--object-format=sha256")
    repos.commit(user, {"a.c": "a\n", "b.c": "b\n"})
    repos.git(user, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    made = workspace_copy.commit_copy(find(tmp_path / "linked"), ("a.c",), tmp_path / "extracted")
    assert made.object_format == "sha256" and (made.path / "a.c").read_text() == "a\n"
    assert repos.git(made.path, "ls-files") == "a.c"


def test_copy_has_committed_files_unchanged(tmp_path: Path) -> None:
    """The project's filters, attributes and uncommitted changes have no effect."""
    user = repos.project(tmp_path / "user", {
        "a.sh": "run\r\n", "sub/b\u00fc c.txt": "x\n", "left.txt": "no\n",
        ".gitattributes": "* text=auto eol=lf\n*.txt filter=other\n"})
    (user / "a.sh").chmod(0o755)
    (user / "link").symlink_to("a.sh")
    head = repos.commit(user, {}, "modes")
    (user / "a.sh").write_text("changed, not committed\n")
    before = sorted(str(path) for path in user.rglob("*"))
    paths = ("a.sh", "link", "sub/b\u00fc c.txt", ".gitattributes")
    made = workspace_copy.commit_copy(find(user), paths, tmp_path / "extracted")
    listed = repos.git(user, "ls-tree", "-r", head).splitlines()
    assert repos.git(made.path, "ls-tree", "-r", "HEAD").splitlines() == [
        line for line in listed if not line.endswith("left.txt")]
    assert made.dirty == ()
    assert repos.git(made.path, "count-objects").startswith("3 ")  # a commit, two trees
    assert sorted(str(path) for path in user.rglob("*")) == before
    again = workspace_copy.commit_copy(find(user), paths, tmp_path / "again")
    assert again.head == made.head
