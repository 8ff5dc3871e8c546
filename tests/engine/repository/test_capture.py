"""What a slot's worktree holds is captured as a tree, whatever its worker did."""

from __future__ import annotations

import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.repository import worktree
from engine.repository.campaign_repo import CampaignRepo
from engine.repository.clone import Clone
from engine.repository.git import Git
from engine.repository.patches.patch import Patch
from harness.errors import InputError
from tests.support import repos


def test_capture_includes_edits_deletions_and_new_files(repo: CampaignRepo) -> None:
    tree = repo.worktree("planned-1", repo.base)
    (tree / "kernel.c").write_text(repos.edited(repos.KERNEL, 7, "changed();"))
    (tree / "src/deep/helper.h").unlink()
    (tree / "src/new file é.h").write_bytes(b"latin \xe9 and \x1b[0m\n")
    (tree / "scratch.tmpfile").write_text("ignored by the project")
    change = repo.capture(tree, repo.base)
    patch = change.patch
    assert [(f.path, f.is_new, f.is_deleted) for f in patch.files] == [
        ("kernel.c", False, False), ("src/deep/helper.h", False, True),
        ("src/new file é.h", True, False),
    ]
    assert (patch.files[0].added, patch.files[0].removed) == (1, 1)
    applied = repo.apply(repo.base, patch)
    assert applied.patch.data == patch.data
    assert (applied.base_tree, applied.tree) == (change.base_tree, change.tree)
    assert repo.read(applied.tree, "src/new file é.h") == b"latin \xe9 and \x1b[0m\n"


def test_untouched_worktree_has_no_change(repo: CampaignRepo) -> None:
    tree = repo.worktree("fixed-1", repo.base)
    assert not repo.capture(tree, repo.base)
    os.utime(tree / "kernel.c")
    (tree / "kernel.c").chmod(0o600)
    assert not repo.capture(tree, repo.base)


def test_edit_with_restored_time_is_captured(repo: CampaignRepo) -> None:
    """The edit keeps the file's size and time stamp, right after the checkout."""
    for n in range(20):
        tree = repo.worktree("sly", repo.base)
        kernel = tree / "kernel.c"
        before = kernel.stat()
        kernel.write_text(repos.KERNEL.replace("line_1(", f"lin{chr(65 + n)}_1("))
        os.utime(kernel, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert len(repo.capture(tree, repo.base).patch.files) == 1


def test_new_files_outside_edit_globs_are_dropped(repo: CampaignRepo) -> None:
    tree = repo.worktree("planned-1", repo.base)
    (tree / "kernel.c").write_text(repos.edited(repos.KERNEL, 7, "changed();"))
    (tree / "NOTES.md").write_text("what I tried")
    (tree / "reference.py").write_text("def rmsnorm(*_): return 0\n")
    patch = repo.capture(tree, repo.base, ("kernel.c",)).patch
    assert [f.path for f in patch.files] == ["kernel.c", "reference.py"]
    assert [(d.path, d.reason) for d in patch.dropped] == [
        ("NOTES.md", "new file that `edit` does not include")]


def test_worker_commits_do_not_hide_changes(repo: CampaignRepo) -> None:
    tree = repo.worktree("agent-1", repo.base)
    for n in (3, 5):
        text = repos.edited((tree / "kernel.c").read_text(), n, f"step_{n}();")
        repos.commit(tree, {"kernel.c": text}, f"step {n}")
    repos.git(tree, "gc", "-q", "--prune=now")
    patch = repo.capture(tree, repo.base).patch
    assert (patch.files[0].added, patch.files[0].removed) == (2, 2)
    assert repos.git(tree, "log", "--format=%s") == "step 5\nstep 3\nstart"


@pytest.mark.parametrize("trick", [
    "rm -rf .git", "rm -rf .git && echo 'gitdir: /nonexistent' > .git",
    "rm -rf .git && mkfifo .git", "rm -rf .git && ln -s / .git", "rm -f .git/HEAD",
    "chmod 000 .git",
    "git config core.worktree /tmp; git config core.bare true",
    "git config core.fsmonitor 'touch TRAP'; git config diff.external 'touch TRAP'",
    "printf '#!/bin/sh\\ntouch TRAP\\n' > .git/hooks/pre-commit || mkdir .git/hooks",
    "git config filter.x.clean 'touch TRAP; cat'; echo '* filter=x diff=x' > .git/info/attributes;"
    " echo '* filter=x diff=x' > .gitattributes; git config diff.x.textconv 'touch TRAP; cat'",
    "git init -q nested && git -C nested config core.fsmonitor 'touch TRAP' && touch nested/f",
    "git init -q nested && cd nested && git config core.fsmonitor 'touch TRAP' && touch f &&"
    " git add f && git -c core.fsmonitor= commit -qm x; rm -f TRAP",
    "rm .gitignore && mkfifo .gitignore", "mkfifo .gitattributes", "mkfifo src/pipe",
    "mkdir .GIT && echo x > .GIT/config", "echo x > 'back\\slash'", "ln -s / root", "chmod 000 src",
    "echo x > \"$(printf 'new\\nline')\"", "touch .git/index.lock",
    "d=x; for i in 1 2 3 4 5 6 7 8 9 10; do d=$d/$d; mkdir -p $d 2>/dev/null; done; true",
])
def test_capture_survives_hostile_worker(repo: CampaignRepo, tmp_path: Path,
                                         trick: str) -> None:
    tree = repo.worktree("hostile", repo.base)
    trap = tmp_path / "trap"
    subprocess.run(["sh", "-c", trick.replace("TRAP", str(trap))], cwd=tree, check=True,
                   env=repos.ENVIRONMENT)
    (tree / "kernel.c").write_text(repos.edited(repos.KERNEL, 3, "faster();"))
    patch = repo.capture(tree, repo.base, ("kernel.c",)).patch
    outside = {"src/deep/helper.h", ".gitignore"}  # some tricks delete or lock these
    assert {f.path for f in patch.files} - outside == {"kernel.c"}
    repo.remove("hostile")
    assert not tree.exists()
    assert not trap.exists()
    again = repo.worktree("hostile", repo.base)
    assert not repo.capture(again, repo.base)


def test_repository_in_submodule_folder_is_not_entered(tmp_path: Path) -> None:
    """Plain `git add` and `git status` run a command that such a folder's configuration names."""
    user, trap = repos.project(tmp_path / "user"), tmp_path / "trap"
    repos.git(user, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},vendored")
    repos.git(user, "commit", "-q", "-m", "submodule")
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", user)
    tree = repo.worktree("s", repo.base)
    assert not repo.capture(tree, repo.base)
    repos.git(tree / "vendored", "init", "-q")
    repos.commit(tree / "vendored", {"f": "x"})
    repos.git(tree / "vendored", "config", "core.fsmonitor", f"touch {trap}")
    (tree / "kernel.c").write_text("changed\n")
    assert [f.path for f in repo.capture(tree, repo.base).patch.files] == ["kernel.c"]
    assert not trap.exists()
    repos.git(tree, "status")
    assert trap.exists()


def test_files_replaced_by_folders_and_links_are_captured(repo: CampaignRepo) -> None:
    tree = repo.worktree("shapes", repo.base)
    (tree / "kernel.c").unlink()
    (tree / "kernel.c").mkdir()
    (tree / "kernel.c" / "part.c").write_text("int part;\n")
    (tree / "src/deep/helper.h").unlink()
    (tree / "src/deep").rmdir()
    (tree / "src/deep").write_text("now a file\n")
    (tree / "task.yaml").unlink()
    (tree / "task.yaml").symlink_to("/etc/passwd")
    patch = repo.capture(tree, repo.base).patch
    assert {f.path for f in patch.files} == {
        "kernel.c", "kernel.c/part.c", "src/deep", "src/deep/helper.h", "task.yaml"}
    assert "root:" not in patch.text
    assert "120000" in {f.new_mode for f in patch.files}


names = st.sampled_from(["kernel.c", "task.yaml", "src/deep/helper.h", "src/new.c", "new", "d/e/f"])


contents = st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=40),
                     st.just(repos.KERNEL + "more\n"))


@given(st.dictionaries(names, contents, min_size=1))
@settings(max_examples=20, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_captured_tree_equals_worktree_but_for_binary_files(
    repo: CampaignRepo, changes: dict[str, str | None]
) -> None:
    """Any edits give a tree of the worktree's own files, and a patch that makes the same tree."""
    tree = repo.worktree("any", repo.base)
    for name, text in changes.items():
        (tree / name).unlink(missing_ok=True)
        if text is not None:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes(text.encode())
    change = repo.capture(tree, repo.base)
    patch = change.patch
    left = {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*")
            if p.is_file() and ".git" not in p.parts}
    binary = {d.path for d in patch.dropped}
    assert change.tree == (repo.apply(repo.base, patch).tree if patch else change.base_tree)
    made = {name: repo.read(change.tree, name) for name in repo.files(change.tree)}
    differ = {n for n in made.keys() | left.keys() if made.get(n) != left.get(n)}
    assert differ == binary
    assert all(b"\0" in left[name] for name in binary)


def test_slots_can_be_filled_in_parallel(repo: CampaignRepo) -> None:
    def fill(n: int) -> Patch:
        tree = repo.worktree(f"slot-{n}", repo.base)
        kernel = tree / "kernel.c"
        kernel.write_text(repos.edited(kernel.read_text(), n, f"slot_{n}();"))
        change = repo.capture(tree, repo.base)
        repo.commit(repo.base, change.tree, f"{n}")
        return change.patch

    with ThreadPoolExecutor(8) as pool:
        patches = list(pool.map(fill, range(16)))
    for n, patch in enumerate(patches):
        assert f"slot_{n}();" in patch.text
        assert (patch.files[0].added, patch.files[0].removed) == (1, 1)
    repo.remove_all()
    assert not (repo.folder / "worktrees").exists()


def test_oversized_changes_are_refused_or_dropped(
    repo: CampaignRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = repo.worktree("flood", repo.base)
    (tree / "huge.c").write_bytes(b"x\n" * (worktree.MAX_FILE // 2 + 1))
    (tree / "data.bin").write_bytes(bytes(range(256)) * 16)
    patch = repo.capture(tree, repo.base).patch
    assert not patch
    assert {d.path for d in patch.dropped} == {"huge.c", "data.bin"}
    monkeypatch.setattr(worktree, "MAX_NEW_FILES", 10)
    for n in range(20):
        (tree / f"f{n}.c").write_text("int x;\n")
    with pytest.raises(InputError, match="new files"):
        repo.capture(tree, repo.base)
    monkeypatch.setattr(worktree, "MAX_FILES", 20)
    with pytest.raises(InputError, match="more than 20 files"):
        repo.capture(tree, repo.base)


def test_missing_worktree_is_input_error(repo: CampaignRepo, tmp_path: Path) -> None:
    for trick in ("nothing", "file", "link"):
        tree = repo.worktree("gone", repo.base)
        repo.remove("gone")
        if trick == "file":
            tree.write_text("")
        if trick == "link":
            tree.symlink_to(tmp_path)
        with pytest.raises(InputError, match="removed its worktree"):
            repo.capture(tree, repo.base)
        repo.remove("gone")
    assert (tmp_path / "user").is_dir()


def test_socket_in_worktree_is_dropped(
        repo: CampaignRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = repo.worktree("s", repo.base)
    monkeypatch.chdir(tree)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")  # a socket's path has at most 107 characters
        patch = repo.capture(tree, repo.base).patch
    assert [(d.path, d.reason) for d in patch.dropped] == [("sock", "not a regular file")]


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc", "-rf", ".git", "a..b", "x" * 200])
def test_slot_name_cannot_leave_worktrees_folder(repo: CampaignRepo, name: str) -> None:
    with pytest.raises(ValueError, match="slot"):
        repo.worktree(name, repo.base)


def test_worktree_reads_the_clones_objects_and_clone_has_no_link_back(repo: CampaignRepo) -> None:
    """A worktree's git reads the clone's objects; the clone has no link back."""
    tree = repo.worktree("planned-1", repo.base)
    assert repos.git(tree, "rev-parse", "HEAD") == repo.base
    assert repos.git(tree, "status", "--porcelain") == ""
    assert repos.git(tree, "rev-parse", "--git-common-dir") == ".git"
    assert Git(repo.git_dir).find("HEAD") == repo.base
    assert isinstance(repo, Clone)
