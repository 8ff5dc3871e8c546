"""Patches in any spelling apply to the tree that they mean, or are refused in one line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.repository.campaign_repo import CampaignRepo
from engine.repository.clone import Change
from engine.repository.patches.hygiene import violations
from engine.repository.patches.patch import parse
from harness.errors import InputError
from tests.support import repos
from tests.support.patch_case import BINARY, MAIL, NEW, SIMPLE, changed


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> CampaignRepo:
    root = tmp_path_factory.mktemp("apply")
    return CampaignRepo.create(root / "campaign", "rms", repos.project(root / "user"))


def edited_tree(repo: CampaignRepo, line: int, new: str, base: str = "") -> Change:
    tree = repo.worktree("s", base or repo.base)
    kernel = tree / "kernel.c"
    kernel.write_text(repos.edited(kernel.read_text(), line, new))
    return repo.capture(tree, base or repo.base)


def renamed(text: str, old: str, new: str) -> str:
    return text.replace("a/kernel.c", old).replace("b/kernel.c", new)


def spellings(repo: CampaignRepo) -> Iterator[tuple[str, bool]]:
    """Yield one change in the formats that people and tools write."""
    text = edited_tree(repo, 5, "faster();").patch.text
    index = next(line for line in text.splitlines() if line.startswith("index "))
    bare = text.replace(f"{index}\n", "")
    unnamed = "".join(bare.splitlines(keepends=True)[1:])
    yield text, True
    yield text.rstrip("\n"), True
    yield bare, True
    yield renamed(text, "i/kernel.c", "w/kernel.c"), True
    yield renamed(bare, "kernel.c", "kernel.c"), True
    yield renamed(bare, "a/home/ann/kernel.c", "b/home/ann/kernel.c"), True
    yield renamed(unnamed, "/tmp/one/kernel.c\t2026", "/tmp/two/kernel.c"), True
    yield renamed(unnamed, "kernel.c.orig", "kernel.c"), True
    yield text + NEW.format("task.yaml"), False
    yield text + NEW.format("src/deep/helper.h"), False


def test_ladder_finds_same_change_in_every_spelling(repo: CampaignRepo) -> None:
    truth = edited_tree(repo, 5, "faster();")
    for text, whole in spellings(repo):
        applied = repo.apply(repo.base, parse(text))
        assert applied.patch.text == truth.patch.text, text
        assert applied.tree == truth.tree
        assert bool(applied.patch.dropped) != whole


def test_handed_in_patch_is_cleaned(repo: CampaignRepo) -> None:
    good = edited_tree(repo, 5, "faster();").patch.text
    truth = repo.apply(repo.base, parse(good))
    dropped = BINARY + NEW.format("notes.md") + NEW.format("__pycache__/k.py")
    foreign = renamed(good, "a/home/ann/kernel.c", "b/home/ann/kernel.c")
    for text in (good, good + dropped, foreign + dropped, MAIL.replace(SIMPLE, good)):
        change = repo.take(repo.base, text.encode(), ("kernel.c",))
        assert change.tree == truth.tree
        assert change.patch.text == truth.patch.text
        assert len(change.patch.dropped) == (3 if dropped in text else 0)
    for text, message in ((dropped, "every file of it was left out"),
                          (BINARY, r"left out: x\.bin \(binary\)"),
                          ("hello\n", "contains no diff")):
        with pytest.raises(InputError, match=message) as error:
            repo.take(repo.base, text, ("kernel.c",))
        assert "\n" not in str(error.value)


def test_patch_made_in_subfolder_finds_file(repo: CampaignRepo) -> None:
    text = "--- a/helper.h\n+++ b/helper.h\n@@ -1 +1 @@\n-#define N 4\n+#define N 8\n"
    applied = repo.apply(repo.base, parse(text))
    assert [f.path for f in applied.patch.files] == ["src/deep/helper.h"]


def test_new_files_follow_siblings_out_of_foreign_folder(repo: CampaignRepo) -> None:
    text = edited_tree(repo, 5, "faster();").patch.text.replace("/kernel.c", "/work/proj/kernel.c")
    applied = repo.apply(repo.base, parse(text + NEW.format("work/proj/src/new.h")))
    assert [f.path for f in applied.patch.files] == ["kernel.c", "src/new.h"]


@pytest.mark.parametrize("path", ["../evil.c", "/etc/evil.c", "a/../../evil.c", ".git/config",
                                  "x/.git/hooks/post-checkout"])
def test_path_outside_tree_is_refused(repo: CampaignRepo, path: str) -> None:
    with pytest.raises(InputError) as error:
        repo.apply(repo.base, parse(NEW.format(path)))
    assert "\n" not in str(error.value)


def test_contradictory_header_is_refused_or_a_violation(repo: CampaignRepo) -> None:
    text = edited_tree(repo, 5, "faster();").patch.text
    lying = text.replace("+++ b/kernel.c", "+++ b/reference.py")
    try:
        applied = repo.apply(repo.base, parse(lying))
    except InputError:
        return
    assert [v.kind for v in violations(applied.patch, ("kernel.c",), ("reference.py",))]


def test_moved_base_is_merged_and_conflict_refused(repo: CampaignRepo) -> None:
    far = edited_tree(repo, 30, "far();")
    near = edited_tree(repo, 7, "near();")
    same = edited_tree(repo, 5, "other();")
    patch = edited_tree(repo, 5, "faster();").patch
    for other in (far, near):  # the second one is merged 3-way
        base = repo.commit(repo.base, other.tree, "moved")
        rebased = repo.apply(base, patch)
        assert (rebased.patch.files[0].added, rebased.patch.files[0].removed) == (1, 1)
        text = repo.read(rebased.tree, "kernel.c").decode()
        assert "faster();" in text
        assert "<<<<<<<" not in text
    with pytest.raises(InputError, match="does not apply"):
        repo.apply(repo.commit(repo.base, same.tree, "moved"), patch)


def test_change_already_in_base_is_empty(repo: CampaignRepo) -> None:
    change = edited_tree(repo, 5, "faster();")
    base = repo.commit(repo.base, change.tree, "kept")
    assert not repo.apply(base, change.patch)
    with pytest.raises(InputError, match="change is empty"):
        repo.commit(base, change.tree, "again")


@pytest.mark.parametrize("text", ["", "just words\n", changed("nowhere.c"), SIMPLE])
def test_error_for_patch_that_does_not_apply_is_one_line(repo: CampaignRepo, text: str) -> None:
    with pytest.raises(InputError) as error:
        repo.apply(repo.base, parse(text))
    assert "\n" not in str(error.value)


def test_git_agrees_with_parser(repo: CampaignRepo, tmp_path: Path) -> None:
    """Plain git applies each section, for a tree of files with odd names."""
    tree = repo.worktree("odd", repo.base)
    for n, name in enumerate((" lead", "sp ace.c", 'quo"te.c', "tab\tx.c", "new\nline.c", "ünï.c",
                              "b/b b/x.c", "-dash", "--- a")):
        (tree / name).parent.mkdir(exist_ok=True, parents=True)
        (tree / name).write_text(f"--- a/{n}\n+++ b/{n}\n@@ -1 +1 @@\n" + "\r\n\x0c\u2028\n" * n)
    (tree / "kernel.c").write_text(repos.KERNEL.rstrip("\n"))
    change = repo.capture(tree, repo.base)
    patch = change.patch
    assert len(patch.files) == 10
    plain = tmp_path / "plain"
    repo.checkout_tree(repo.base, plain)
    for file in patch.files:  # each section applies by itself
        done = subprocess.run(["git", "apply", "-"], input=file.text.encode(), cwd=plain,
                              check=False, capture_output=True, env=repos.ENVIRONMENT)
        assert done.returncode == 0, done.stderr
    whole = tmp_path / "whole"
    assert repo.apply(repo.base, patch).tree == change.tree
    repo.checkout_tree(change.tree, whole)
    found = [{str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}
             for top in (plain, whole)]
    assert found[0] == found[1]
