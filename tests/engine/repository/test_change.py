"""A candidate is a tree: what must not be in it is dropped from the tree and from its patch."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.repository import clone as changes
from engine.repository.campaign_repo import CampaignRepo
from harness.errors import InputError
from tests.support import repos

BINARY = bytes(range(256)) * 4


@pytest.fixture
def repo(tmp_path: Path) -> CampaignRepo:
    user = repos.project(tmp_path / "user")
    (user / "weights.bin").write_bytes(BINARY)
    repos.git(user, "add", "-f", "weights.bin")
    repos.git(user, "commit", "-q", "-m", "weights")
    return CampaignRepo.create(tmp_path / "campaign", "rms", user)


def test_dropped_files_keep_base_content(repo: CampaignRepo) -> None:
    tree = repo.worktree("s", repo.base)
    (tree / "kernel.c").write_text("int x;\n")
    (tree / "weights.bin").write_bytes(BINARY[::-1])
    (tree / "data.npy").write_bytes(BINARY)
    (tree / "notes.md").write_text("what I tried\n")
    change = repo.capture(tree, repo.base, ("kernel.c", "*.npy"))
    assert [file.path for file in change.patch.files] == ["kernel.c"]
    assert {left.path for left in change.patch.dropped} == {"weights.bin", "data.npy", "notes.md"}
    assert repo.files(change.tree) == repo.files(repo.base)
    assert repo.read(change.tree, "weights.bin") == BINARY
    assert repo.read(change.tree, "kernel.c") == b"int x;\n"
    assert repo.diff(change.base_tree, change.tree).data == change.patch.data


def test_deleted_binary_file_is_restored(repo: CampaignRepo) -> None:
    tree = repo.worktree("s", repo.base)
    (tree / "weights.bin").unlink()
    change = repo.capture(tree, repo.base)
    assert not change and change.tree == change.base_tree


def test_file_below_dropped_path_is_refused(repo: CampaignRepo) -> None:
    """The base has a file in the place of the folder, and a binary file cannot be deleted."""
    tree = repo.worktree("s", repo.base)
    (tree / "weights.bin").unlink()
    (tree / "weights.bin").mkdir()
    (tree / "weights.bin" / "part.c").write_text("int part;\n")
    with pytest.raises(InputError, match=r"the change is incomplete without 'weights\.bin'"):
        repo.capture(tree, repo.base)


def test_change_is_narrowed_to_chosen_files(repo: CampaignRepo) -> None:
    tree = repo.worktree("s", repo.base)
    (tree / "kernel.c").write_text("int x;\n")
    (tree / "src/deep/helper.h").unlink()
    (tree / "src/new.h").write_text("#define N 1\n")
    change = repo.capture(tree, repo.base)
    assert len(change.patch.files) == 3
    for file in change.patch.files:
        alone = changes.narrowed(repo, change, msgspec.structs.replace(change.patch, files=(file,)))
        assert alone.tree == repo.apply(repo.base, alone.patch).tree
        assert alone.patch.files == (file,)
    nothing = changes.narrowed(repo, change, msgspec.structs.replace(change.patch, files=()))
    assert not nothing and nothing.tree == change.base_tree


def test_handed_in_patch_drops_files_from_tree(repo: CampaignRepo) -> None:
    tree = repo.worktree("s", repo.base)
    (tree / "kernel.c").write_text("int x;\n")
    (tree / "notes.md").write_text("what I tried\n")
    whole = repo.capture(tree, repo.base)
    handed_in = repo.take(repo.base, whole.patch.data, ("kernel.c",))
    assert [file.path for file in handed_in.patch.files] == ["kernel.c"]
    assert "notes.md" in repo.files(whole.tree) and "notes.md" not in repo.files(handed_in.tree)


def test_records_of_kept_commits_are_not_part_of_a_candidate(repo: CampaignRepo) -> None:
    """Else its id would depend on times in the records, and a candidate could change them."""
    tree = repo.worktree("s", repo.base)
    (tree / "kernel.c").write_text("int x;\n")
    first = repo.capture(tree, repo.base)
    kept, again = (repo.commit(repo.base, first.tree, "faster", {".kopt/rms/log.md": text})
                   for text in (b"1 s", b"2 s"))
    assert kept != again and repo.tree_of(kept) == repo.tree_of(again) == first.tree
    assert repo.files(kept) == repo.files(repo.base)

    tree = repo.worktree("s", kept)
    (tree / ".kopt/rms/log.md").write_text("forged\n")
    (tree / ".kopt/new.c").write_text("int forged;\n")
    assert not repo.capture(tree, kept)
    (tree / "kernel.c").write_text("int y;\n")
    whole = repo.diff(repo.base, first.tree).data + (
        b"--- /dev/null\n+++ b/.kopt/new.c\n@@ -0,0 +1 @@\n+int forged;\n")
    second, handed_in = repo.capture(tree, kept), repo.take(repo.base, whole)
    assert handed_in.tree == first.tree
    upper = repo.commit(kept, second.tree, "faster yet", {".kopt/rms/more.md": b"3 s"})
    assert repos.git(repo.git_dir, "diff", "--name-only", kept, upper).split() == [
        ".kopt/rms/more.md", "kernel.c"]
