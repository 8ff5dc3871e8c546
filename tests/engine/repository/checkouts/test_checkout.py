"""Every checkout has submodules, LFS contents and built files, as copies, without a network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from engine.repository.campaign_repo import CampaignRepo
from engine.repository.checkouts import lfs, submodules
from engine.repository.clone import Clone
from harness.errors import InputError
from tests.support import repos
from tests.support.repos import pointer


def with_submodules(root: Path) -> Path:
    """Make a project with nested submodules; the outer one's name is not its folder."""
    inner = repos.project(root / "inner", {"inner.h": "#define INNER 1\n"})
    outer = repos.project(root / "outer", {"outer.h": "#define OUTER 1\n"})
    repos.submodule(outer, inner, "deps/inner")
    user = repos.project(root / "user")
    repos.submodule(user, outer, "third_party/outer", "--name", "a name")
    return user


WHOLE = {"third_party/outer/outer.h": "#define OUTER 1\n",
         "third_party/outer/deps/inner/inner.h": "#define INNER 1\n"}


def test_submodules_are_in_every_checkout(tmp_path: Path) -> None:
    user = with_submodules(tmp_path)
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", user)
    assert repo.missing == ()
    for name in ("inner", "outer", "user"):  # checkouts must not need them
        shutil.rmtree(tmp_path / name)
    tree = repo.worktree("s", repo.base)
    repo.checkout_tree(repo.base, tmp_path / "plain")
    for checkout in (tree, tmp_path / "plain"):
        assert repos.files(checkout).items() >= WHOLE.items()
        assert (checkout / "kernel.c").read_text() == repos.KERNEL
    assert repos.git(tree, "status", "--porcelain") == ""
    assert not repo.capture(tree, repo.base)


def test_changes_inside_submodule_are_not_captured(tmp_path: Path) -> None:
    user = with_submodules(tmp_path)
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", user)
    tree = repo.worktree("s", repo.base)
    (tree / "third_party/outer/outer.h").write_text("#define OUTER 2\n")
    (tree / "kernel.c").write_text("int x;\n")
    change = repo.capture(tree, repo.base)
    assert [file.path for file in change.patch.files] == ["kernel.c"]
    commit = repo.commit(repo.base, change.tree, "faster")
    assert repo.advance(repo.base, commit) and repo.publish() == ""
    assert "160000" in repos.git(user, "ls-tree", "-r", "optimize/rms", "third_party/outer")
    repo.checkout_tree(commit, tmp_path / "next")
    assert repos.files(tmp_path / "next").items() >= WHOLE.items()


def test_submodule_without_checkout_is_found_in_git_modules(tmp_path: Path) -> None:
    user = with_submodules(tmp_path)
    repos.git(user, "submodule", "--quiet", "deinit", "--force", "third_party/outer")
    assert not (user / "third_party/outer/outer.h").exists()
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", user)
    assert repo.missing == ()
    assert repos.files(repo.worktree("s", repo.base)).items() >= WHOLE.items()


@pytest.mark.parametrize(("gone", "named"), [
    ("third_party/outer", "third_party/outer"),
    ("third_party/outer/deps/inner", "third_party/outer/deps/inner"),
])
def test_missing_submodule_is_reported_in_one_line(tmp_path: Path, gone: str, named: str) -> None:
    user = with_submodules(tmp_path)
    within, _, _ = gone.rpartition("/deps/inner")
    repos.git(user / within if within else user, "submodule", "--quiet", "deinit", "--force",
              gone.removeprefix(f"{within}/") if within else gone)
    modules = user / ".git/modules/a name"
    shutil.rmtree(modules / "modules/deps/inner" if within else modules)
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", user)
    [message] = repo.missing
    assert f"from every checkout: {named} (run `git submodule update" in message
    assert repo.worktree("s", repo.base).is_dir()
    assert CampaignRepo(tmp_path / "campaign", "rms", user).missing == (message,)


@pytest.mark.parametrize(("paths", "refused"), [
    (("third_party/outer/outer.h",), True), (("third_party/outer",), True),
    (("kernel.c", "./third_party/outer/deps/**"), True), (("third_party/outer2/x",), False),
    (("kernel.c", "third_party/*"), False), ((), False),
])
def test_path_in_submodule_cannot_be_edited(tmp_path: Path, paths: tuple[str, ...],
                                            refused: bool) -> None:
    user = repos.project(tmp_path / "user")
    repos.git(user, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},third_party/outer")
    repos.git(user, "commit", "-q", "-m", "submodule")
    clone = Clone(user / ".git")
    if not refused:
        submodules.check(clone, "HEAD", paths)
        return
    with pytest.raises(InputError, match="lies in the submodule third_party/outer") as error:
        submodules.check(clone, "HEAD", paths)
    assert "\n" not in str(error.value)


WEIGHTS = b"\0weights\xff" * 500


def with_lfs(root: Path, *, store: bool = True, checked_out: bool = False) -> Path:
    """Make a project whose commit holds LFS pointers."""
    user = repos.project(root / "user", {
        **repos.FILES, ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
        "data/w.bin": pointer(WEIGHTS), "near.txt": pointer(WEIGHTS).replace("size", "sizes")})
    if store:
        repos.store(user, WEIGHTS)
    if checked_out:
        (user / "data/w.bin").write_bytes(WEIGHTS)
    return user


@pytest.mark.parametrize(("store", "checked_out"), [(True, False), (False, True)])
def test_lfs_contents_are_in_every_checkout(tmp_path: Path, store: bool,
                                            checked_out: bool) -> None:
    user = with_lfs(tmp_path, store=store, checked_out=checked_out)
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", user)
    assert repo.missing == ()
    user.rename(tmp_path / "gone")
    tree = repo.worktree("s", repo.base)
    repo.checkout_tree(repo.base, tmp_path / "plain")
    for checkout in (tree, tmp_path / "plain"):
        assert (checkout / "data/w.bin").read_bytes() == WEIGHTS
        assert not repo.capture(checkout, repo.base)
        (checkout / "kernel.c").write_text("int x;\n")
        assert [f.path for f in repo.capture(checkout, repo.base).patch.files] == ["kernel.c"]
    (tree / "data/w.bin").write_bytes(b"written in place")
    again = repo.worktree("other", repo.base)
    assert (again / "data/w.bin").read_bytes() == WEIGHTS


def test_changed_lfs_file_is_dropped_with_reason(tmp_path: Path) -> None:
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", with_lfs(tmp_path))
    tree = repo.worktree("s", repo.base)
    for change in (lambda: (tree / "data/w.bin").write_text("text now\n"),
                   lambda: (tree / "data/w.bin").unlink()):
        change()
        patch = repo.capture(tree, repo.base).patch
        assert not patch.files
        assert [(d.path, d.reason) for d in patch.dropped] == [
            ("data/w.bin", "stored with Git LFS: no candidate can change it")]
    (tree / "data/w.bin").write_text(pointer(WEIGHTS))
    assert repo.capture(tree, repo.base).patch.dropped == ()


def test_missing_lfs_contents_are_reported(tmp_path: Path) -> None:
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", with_lfs(tmp_path, store=False))
    [message] = repo.missing
    assert "from every checkout: data/w.bin (run `git lfs pull`" in message
    tree = repo.worktree("s", repo.base)
    assert (tree / "data/w.bin").read_text() == pointer(WEIGHTS)
    assert not repo.capture(tree, repo.base)


@pytest.mark.parametrize(("text", "found"), [
    (pointer(b"x"), True), (pointer(b"x").replace("\n", "\r\n"), False),
    (pointer(b"x") + "more\n", False), ("version https://git-lfs.github.com/spec/v1\n", False),
    (pointer(b"x").replace("oid", "ext-0-foo sha256:00\noid"), True), ("", False),
])
def test_only_exact_lfs_pointers_are_recognised(text: str, found: bool) -> None:
    assert bool(lfs.parse(text.encode())) is found


def test_project_without_lfs_is_not_searched_for_pointers(tmp_path: Path) -> None:
    user = repos.project(tmp_path / "user", {"w.bin": pointer(b"x"), "kernel.c": "x\n"})
    assert lfs.pointers(Clone(user / ".git"), "HEAD") == {}
