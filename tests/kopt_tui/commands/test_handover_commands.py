"""Tests `kopt submit`, `kopt merge` and `kopt prune`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.journal import lease
from engine.journal.write import Writer
from engine.manifest import load
from engine.manifest.schema import Manifest
from engine.repository.campaign_repo import CampaignRepo
from engine.repository.patches.patch import parse
from tests.support import repos
from tests.support.dashboards import samples
from tests.support.programs.command_line import (
    NAME,
    PATCH,
    answer,
    error_text,
    kopt,
    write_campaign,
)

LINE = "float line_3(float x) { return x + x + x; }"


@contextmanager
def running_engine(workspace: Path) -> Iterator[None]:
    """Hold the campaign's lease, as an engine does."""
    writer = Writer(workspace)
    own = lease.acquire(writer, NAME)
    yield
    lease.release(writer, own)
    writer.close()


def kept_campaign(tmp_path: Path, speedup: float | None = 1.5) -> tuple[Path, Path]:
    """Create a project and a campaign whose clone has one kept commit."""
    project = repos.project(tmp_path / "project")
    workspace = tmp_path / "workspace"
    folder = workspace / NAME
    repo = CampaignRepo.create(folder, NAME, project)
    base = repo.base
    tree = repo.worktree("fixed-1", base)
    (tree / "kernel.c").write_text(repos.edited(repos.KERNEL, 3, LINE))
    commit = repo.commit(base, repo.capture(tree, base).tree, "Make line 3 faster")
    assert repo.advance(base, commit)
    writer = Writer(workspace)
    writer.add_campaign(samples.campaign(
        NAME, path=str(folder), project=str(project), base_commit=base, best_commit=commit,
        state="finished", speedup=speedup, speedup_low=1.4 if speedup else None,
        speedup_high=1.6 if speedup else None))
    writer.add_candidate(samples.candidate("cc" * 10, NAME))
    writer.add_decision(NAME, "cc" * 10, "keep", "sums instead of a product", round=1,
                        actor="judge", commit=commit)
    writer.close()
    return project, workspace


def state_of(project: Path) -> tuple[str, ...]:
    return (repos.git(project, "rev-parse", "HEAD"), repos.git(project, "status", "--porcelain"),
            repos.git(project, "branch", "--list"), (project / "kernel.c").read_text())


def test_merge_adds_the_commits(tmp_path: Path) -> None:
    project, workspace = kept_campaign(tmp_path)
    before = repos.git(project, "rev-parse", "HEAD")
    done = kopt("merge", workspace=workspace)
    assert done.returncode == 0, done.stderr
    assert LINE in (project / "kernel.c").read_text()
    message = repos.git(project, "log", "-1", "--format=%B")
    assert message.startswith("Make rmsnorm faster: 1.50x [1.40, 1.60]")
    assert "- sums instead of a product (" in message
    assert len(repos.git(project, "log", "--format=%s", f"{before}..").splitlines()) == 2
    assert repos.git(project, "status", "--porcelain") == ""
    again = kopt("merge", workspace=workspace)
    assert again.returncode == 1 and "already in this branch" in error_text(again)


def test_squash_adds_one_commit(tmp_path: Path) -> None:
    project, workspace = kept_campaign(tmp_path)
    before = repos.git(project, "rev-parse", "HEAD")
    merged = answer(kopt("merge", "--as", "squash", "--json", workspace=workspace))
    assert (merged["form"], merged["files"]) == ("merged", ["kernel.c"])
    assert repos.git(project, "rev-parse", "HEAD", "HEAD~1").split() == [merged["commit"], before]
    assert LINE in (project / "kernel.c").read_text()


def test_merge_as_a_patch_changes_nothing_in_the_project(tmp_path: Path) -> None:
    project, workspace = kept_campaign(tmp_path)
    (project / "kernel.c").write_text("dirty\n")
    before = state_of(project)
    printed = kopt("merge", "--as", "patch", workspace=workspace).stdout
    assert f"+{LINE}" in printed
    file = tmp_path / "out.patch"
    assert kopt("merge", "--as", "patch", "--output", str(file), workspace=workspace).stdout == ""
    assert file.read_text() == printed
    for words in ((), ("--output", str(file))):
        value = answer(kopt("merge", "--patch", *words, "--json", workspace=workspace))
        assert value["place" if words else "patch"] == (str(file) if words else printed)
    assert file.read_text() == printed == answer(kopt("diff", "--json",
                                                      workspace=workspace))["patch"]
    assert state_of(project) == before


@pytest.mark.parametrize("form", ["branch", "squash"])
def test_merge_into_a_project_with_uncommitted_changes_is_refused(
        form: str, tmp_path: Path) -> None:
    project, workspace = kept_campaign(tmp_path)
    (project / "reference.py").write_text("my own work\n")
    before = state_of(project)
    done = kopt("merge", "--as", form, workspace=workspace)
    assert done.returncode == 1
    assert "1 file changed but not committed, first reference.py" in error_text(done)
    assert state_of(project) == before


def test_merge_of_an_unmeasured_best_says_so(tmp_path: Path) -> None:
    _, workspace = kept_campaign(tmp_path, speedup=None)
    done = kopt("merge", workspace=workspace)
    assert done.returncode == 0 and "not been measured against the baseline" in done.stderr


@pytest.mark.parametrize("form", ["branch", "squash"])
def test_conflict_leaves_the_project_unchanged(form: str, tmp_path: Path) -> None:
    project, workspace = kept_campaign(tmp_path)
    repos.commit(project, {"kernel.c": repos.edited(repos.KERNEL, 3, "// mine")}, "mine")
    (project / "untracked").write_text("kept\n")
    before = state_of(project)
    done = kopt("merge", "--as", form, workspace=workspace)
    assert done.returncode == 1 and "nothing was changed" in error_text(done)
    assert state_of(project) == before


@pytest.mark.parametrize("words", [("merge",), ("merge", "--patch"), ("resume",)])
def test_deleted_clone_is_named_with_what_is_left_of_the_result(
        words: tuple[str, ...], tmp_path: Path) -> None:
    """`kopt merge` only said that a folder is gone; the commits are in the project, too."""
    _, workspace = kept_campaign(tmp_path)
    shutil.rmtree(workspace / NAME)
    done = kopt(*words, workspace=workspace)
    assert done.returncode == 3 and "the campaign's clone is gone" in error_text(done)
    assert f"git merge optimize/{NAME} in " in error_text(done)
    assert answer(kopt("show", "--json", workspace=workspace))["controls"] == []


def test_resume_names_files_of_the_project_that_the_campaign_does_not_use(tmp_path: Path) -> None:
    """A person who had edited the source or the manifest was not told that resume ignores it."""
    project, workspace = kept_campaign(tmp_path)
    words = ("resume", "--wait", "0")
    manifest = Manifest(target_op="x", kernel_source="kernel.c", project=str(project))
    (workspace / NAME / "manifest.yaml").write_text(load.dump(manifest))
    assert "changed since" not in kopt(*words, workspace=workspace).stderr
    assert kopt("merge", workspace=workspace).returncode == 0
    assert "changed since" not in kopt(*words, workspace=workspace).stderr
    (project / "kernel.c").write_text("my own work\n")
    assert f"kopt: kernel.c changed since {NAME} began" in " ".join(
        kopt(*words, workspace=workspace).stderr.split())


def test_merge_is_refused_if_nothing_was_kept(tmp_path: Path) -> None:
    write_campaign(tmp_path, best_commit="b" * 40)
    done = kopt("merge", workspace=tmp_path)
    assert done.returncode == 1 and "has kept nothing yet" in error_text(done)


def test_submitted_patch_appears_whole_in_the_inbox(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, state="running")
    (folder / "manifest.yaml").write_text("target_op: rmsnorm\n")
    file = tmp_path / "my idea!.patch"
    file.write_bytes(PATCH)
    with running_engine(tmp_path):
        value = answer(kopt("submit", str(file), "--hypothesis", "wider \x1b[1mloads", "--json",
                            workspace=tmp_path))
        [dropped] = (folder / "inbox").iterdir()
        assert Path(value["path"]) == dropped and dropped.name.endswith("-my-idea.patch")
        assert dropped.read_bytes() == b"Hypothesis: wider loads\n\n" + PATCH
        assert kopt("submit", "-", NAME, workspace=tmp_path, stdin=PATCH).returncode == 0
    assert len(list((folder / "inbox").iterdir())) == 2
    assert parse(dropped.read_bytes())


@pytest.mark.parametrize("target", [
    "target: {kind: kernel, task: t.yaml}",
    "target: {kind: command, csv: a.csv, check: ok, metrics: [us]}\nbenchmark_command: ./bench"])
def test_submitted_source_replaces_the_kernels_source(target: str, tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, state="running")
    (folder / "manifest.yaml").write_text(
        f"target_op: layer\n{target}\nkernel_source: model.py\n")
    (tmp_path / "new.py").write_text("class ModelNew: pass\n")
    with running_engine(tmp_path):
        done = kopt("submit", str(tmp_path / "new.py"), "--hypothesis", "fused",
                    workspace=tmp_path)
        assert done.returncode == 0, done.stderr
    [dropped] = (folder / "inbox").iterdir()
    assert dropped.suffix == ".source"
    assert dropped.read_text() == "Hypothesis: fused\n\nclass ModelNew: pass\n"


@pytest.mark.parametrize(
    ("content", "part"),
    [(b"", "the file contains no diff"), (b"just words\n", "the file contains no diff"),
     (b"\0" * (5 << 20), "larger than 4 MiB"),
     (b"diff --git a/k.c b/k.c\n--- a/k.c\n+++ b/k.c\n", "the diff has no hunk"),
     (b"--- a/k.c\n+++ b/k.c\n@@ -1 +1 @@\n-a\n+b\n+c\n",
      ":5: the hunk of line 3 is longer than its header says")],
    ids=["empty", "prose", "huge", "no hunk", "torn"],
)
def test_file_without_a_whole_diff_is_not_submitted(content: bytes, part: str,
                                                    tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, state="running")
    done = kopt("submit", "-", workspace=tmp_path, stdin=content)
    assert done.returncode == 2 and part in error_text(done)
    assert not (folder / "inbox").exists()


def test_patch_that_no_engine_would_judge_is_refused(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, state="running")
    (folder / "manifest.yaml").write_text("target_op: rmsnorm\n")
    writer = Writer(tmp_path)
    writer.start_round(samples.round_(2, NAME))
    writer.close()
    done = kopt("submit", "-", workspace=tmp_path, stdin=PATCH)
    assert done.returncode == 1 and \
        f"no engine runs {NAME}, which stopped mid-round (kopt resume continues it" in \
        error_text(done)
    assert not (folder / "inbox").exists()


def test_prune_deletes_only_checkouts_of_ended_campaigns(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    live = write_campaign(tmp_path, "live_c_cpu_20261120", state="running")
    precious = tmp_path / "precious"
    precious.mkdir()
    for where in (folder, live):
        (where / "worktrees" / "slot").mkdir(parents=True)
        (where / "worktrees" / "slot" / "kernel.c").write_bytes(b"x" * 100_000)
        (where / "worktrees" / "slot" / "out").symlink_to(precious)
        (where / "worktrees" / "slot").chmod(0o500)
        (where / "scratch").symlink_to(precious)
    preview = answer(kopt("prune", "--dry-run", "--json", workspace=tmp_path))
    assert preview["bytes"] >= 100_000 and (folder / "worktrees").is_dir()
    done = kopt("prune", workspace=tmp_path)
    assert f"removed {folder / 'worktrees'}" in done.stdout
    assert not (folder / "worktrees").exists() and (folder / "patches" / "kept.patch").exists()
    assert (live / "worktrees" / "slot" / "kernel.c").exists() and precious.is_dir()
    refused = kopt("prune", "live", workspace=tmp_path)
    assert refused.returncode == 1 and "still needs its folders" in error_text(refused)


def test_prune_skips_a_campaign_whose_engine_is_still_ending(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path)
    (folder / "worktrees").mkdir()
    writer = Writer(tmp_path)
    held = lease.acquire(writer, NAME)
    assert answer(kopt("prune", "--json", workspace=tmp_path))["removed"] == []
    lease.release(writer, held)
    writer.close()
