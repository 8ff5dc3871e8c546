"""Built files are carried into checkouts, and only what changed is built again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine.campaign import workspace_copy
from engine.repository.campaign_repo import CampaignRepo
from engine.repository.project import find
from engine.verify import canary
from harness.benchmark.verdict.canary_check import UNBUILT
from harness.errors import InputError
from harness.verdict import Evidence, Verdict
from tests.support import repos
from tests.support.benchmarks.build_case import BUILT, make, with_build


def test_build_in_checkout_rebuilds_only_what_changed(tmp_path: Path) -> None:
    repo = CampaignRepo.create(tmp_path / "c", "rms", with_build(tmp_path), carry=BUILT)
    tree = repo.worktree("s", repo.base)
    assert make(tree) == []
    (tree / "kernel.c").write_text("int kernel(void) { return 3; }\n")
    change = repo.capture(tree, repo.base, ("kernel.c",))
    repo.checkout_tree(change.tree, tmp_path / "candidate")
    assert make(tmp_path / "candidate") == ["kernel.c", "slow.o"]
    repo.checkout_tree(repo.base, tmp_path / "base")
    assert make(tmp_path / "base") == []


def test_files_built_from_uncommitted_sources_are_rebuilt(tmp_path: Path) -> None:
    """Otherwise the baseline would be measured with uncommitted changes."""
    user = with_build(tmp_path)
    (user / "kernel.c").write_text("int kernel(void) { return 9; }\n")
    assert make(user) == ["kernel.c", "slow.o"]
    repo = CampaignRepo.create(tmp_path / "c", "rms", user, carry=BUILT)
    assert make(repo.worktree("s", repo.base)) == ["kernel.c", "slow.o"]


def test_built_files_are_copies_and_not_captured(tmp_path: Path) -> None:
    user = with_build(tmp_path)
    (user / ".gitignore").unlink()  # as if they were ignored by the user's own settings
    repos.git(user, "commit", "-q", "-am", "no list")
    repo = CampaignRepo.create(tmp_path / "c", "rms", user, carry=BUILT)
    before = (user / "lib.so").read_bytes()
    tree = repo.worktree("s", repo.base)
    with (tree / "lib.so").open("r+b") as file:
        file.write(b"EVIL")
    (tree / "kernel.o").unlink()
    assert not repo.capture(tree, repo.base).patch.files
    assert (repo.worktree("t", repo.base) / "lib.so").read_bytes() == before
    assert (user / "lib.so").read_bytes() == before
    inodes = {p.stat().st_ino for p in user.glob("*.[os]*")}
    assert not any(p.stat().st_ino in inodes for p in (tmp_path / "c").rglob("*.[os]*"))


def with_a_built_submodule(root: Path) -> Path:
    """Make a project with built files in its submodule and in the nested one."""
    inner = repos.project(root / "inner", {"inner.h": "#define INNER 1\n"})
    lib = repos.project(root / "lib", {
        "h.h": '#include "in/inner.h"\n#define LIB 1\n', "lib.c": '#include "h.h"\n',
        ".gitignore": "*.o\n"})
    repos.submodule(lib, inner, "in")
    user = repos.project(root / "user", {"Makefile": (
        "lib/lib.o: lib/lib.c lib/h.h lib/in/inner.h\n\tgcc -c $< -o $@\n")})
    repos.submodule(user, lib, "lib")
    (user / "lib/in/inner.o").write_text("built")
    (user / "fetched/.git").mkdir(parents=True)
    (user / "fetched/.git/HEAD").write_text("ref: refs/heads/main\n")
    make(user)
    return user


def test_carried_files_do_not_replace_submodule_files(tmp_path: Path) -> None:
    """Built files are carried; `.git` files are not, since a checkout lacks what they point to."""
    user = with_a_built_submodule(tmp_path)
    for name, text in (("h.h", "#define LIB 2\n"), ("in/inner.h", "#define INNER 2\n")):
        (user / "lib" / name).write_text(text)
    before = {name: (user / "lib" / name).lstat().st_mtime_ns for name in ("lib.c", "h.h")}
    repo = CampaignRepo.create(tmp_path / "c", "rms", user, carry=("lib", "fetched"))
    tree = repo.worktree("s", repo.base)
    repo.checkout_tree(repo.base, tmp_path / "plain")
    for checkout in (tree, tmp_path / "plain"):
        lib = checkout / "lib"
        assert (lib / "h.h").read_text().endswith("#define LIB 1\n")
        assert (lib / "in/inner.h").read_text() == "#define INNER 1\n"
        assert (lib / "lib.o").is_file() and (lib / "in/inner.o").read_text() == "built"
        assert not os.path.lexists(lib / ".git") and not os.path.lexists(lib / "in/.git")
        assert (checkout / "fetched/.git/HEAD").is_file()  # as CMake's FetchContent leaves it
        assert (lib / "lib.c").lstat().st_mtime_ns == before["lib.c"]
        assert (lib / "h.h").lstat().st_mtime_ns > before["h.h"]
        assert make(checkout) == ["lib/lib.o"]  # the user's build has other headers


def test_unchanged_submodule_is_not_rebuilt(tmp_path: Path) -> None:
    user = with_a_built_submodule(tmp_path)
    repo = CampaignRepo.create(tmp_path / "c", "rms", user, carry=("**/*.o",))
    assert make(repo.worktree("s", repo.base)) == []
    (user / "lib/.git").unlink()  # an older git has the repository itself there
    shutil.copytree(user / ".git/modules/lib", user / "lib/.git")
    repos.git(user / "lib", "config", "--unset", "core.worktree")
    repo = CampaignRepo.create(tmp_path / "d", "rms", user, carry=("lib",))
    tree = repo.worktree("s", repo.base)
    assert make(tree) == [] and not os.path.lexists(tree / "lib/.git")
    copied = workspace_copy.commit_copy(
        find(user), ("Makefile",), tmp_path / "extracted"
    )  # the copy has no submodule
    copy = CampaignRepo.create(tmp_path / "e", "rms", copied, carry=("lib",), origin=find(user))
    tree = copy.worktree("s", copy.base)
    assert [name for name in ("lib", "lib/in") for _ in (tree / name).glob("*.[ch]")] == []
    assert (tree / "lib/lib.o").is_file() and (tree / "lib/in/inner.o").is_file()


def test_workspace_is_not_carried_into_itself(tmp_path: Path) -> None:
    user = with_build(tmp_path)
    CampaignRepo.create(user / "workspace" / "one", "rms", user, carry=BUILT)
    for name in ("workspace/two", "three"):
        repo = CampaignRepo.create(user / name, "rms", user, carry=("**/*.o", "**/*.so"))
        tree = repo.worktree("s", repo.base)
        found = sorted(str(p.relative_to(tree)) for p in tree.rglob("*.o"))
        assert [path for path in found if name in path] == []
        assert found[:2] == ["kernel.o", "slow.o"]


def test_error_for_carry_without_match_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no files that match build/\*\*") as error:
        CampaignRepo.create(tmp_path / "c", "rms", repos.project(tmp_path / "user"),
                            carry=("build/**",))
    assert "\n" not in str(error.value)


def test_failed_build_proves_nothing_to_the_canary_if_builds_are_carried(tmp_path: Path) -> None:
    """After a failed build the carried files remain, so a passing benchmark proves nothing."""
    repo = CampaignRepo.create(tmp_path / "c", "rms", with_build(tmp_path), carry=BUILT)
    verdict = Verdict(valid=False, rejected_reason="x",
                      evidence=(Evidence(kind=UNBUILT, detail="exited with 2"),))
    def run_canary(carries: bool) -> tuple[str, ...]:
        return canary.check(lambda tree: verdict, repo, repo.base, edit=("kernel.c",),
                            frozen=(), has_carried_builds=carries)
    assert run_canary(True) == (canary.UNPROVEN,)
    with pytest.raises(InputError, match="does not run the files"):
        run_canary(False)


def test_plain_project_gets_no_extra_files(tmp_path: Path) -> None:
    user = repos.project(tmp_path / "user")
    repo = CampaignRepo.create(tmp_path / "c", "rms", find(user))
    assert repo.missing == ()
    assert repos.files(repo.worktree("s", repo.base)) == {
        name: text for name, text in repos.FILES.items() if name != ".gitignore"} | {
        ".gitignore": repos.FILES[".gitignore"]}
    assert not os.path.lexists(repo.folder / "carried")
