"""An extracted copy has submodules, LFS contents and built files; only kernel changes go back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engine.campaign import workspace_copy
from engine.campaign.setup import Setup
from engine.repository.campaign_repo import CampaignRepo
from engine.repository.patches.hygiene import violations
from engine.repository.project import find
from harness.errors import InputError
from harness.formats import yaml_document
from tests.support import repos
from tests.support.benchmarks import benchmark_case
from tests.support.benchmarks.build_case import BUILT, make, with_build
from tests.support.engines import campaigns
from tests.support.programs.command_line import kopt

DATA = b"\0weights\xff" * 100
BENCH = """\
import csv, pathlib, random, sys, time
sys.path.insert(0, "src/ops")
import kernel

assert len(pathlib.Path("data/w.bin").read_bytes()) == 900, "no weights"
for name in ("build/made.txt", "third_party/outer/outer.h", "third_party/outer/deps/in/inner.h"):
    assert pathlib.Path(name).read_text() == "whole\\n", name
with open("bench.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["m", "at", "err", "us"])
    for m in (64, 128):
        rows.writerow([m, time.time(), 0, kernel.COST * m * random.uniform(0.999, 1.001)])
"""
WORKSPACE = {
    "target_op": "norm", "benchmark_command": "python bench/run.py", "edit": ["src/ops/kernel.py"],
    "target": {"kind": "command", "csv": "bench.csv", "check": "err == 0", "metrics": ["us"]},
    "gpu": {"device": "cpu"}, "budget": {"pairs": 3}, "approval": "auto", "max_iterations": 1,
    "pool": {"slots": 1, "backends": ["inbox"]}, "decision": {"alpha": 0.2, "looks": 4},
    "execution_mode": "workspace", "extract": ["third_party/outer/**", "data/*.bin"],
    "carry": ["build/**", "web/**"]}


def project_with_all_kinds(root: Path, *, store: bool = True) -> Path:
    """Make a project with nested submodules, LFS files and built files.

    With `store`, it also has the contents of the LFS file that is needed.
    """
    inner = repos.project(root / "inner", {"inner.h": "whole\n"})
    outer = repos.project(root / "outer", {"outer.h": "whole\n"})
    other = repos.project(root / "other", {"other.h": "never wanted\n"})
    repos.submodule(outer, inner, "deps/in")
    user = repos.project(root / "p", {
        "src/ops/kernel.py": benchmark_case.KERNEL, "bench/run.py": BENCH,
        ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", ".gitignore": "build/\n",
        "data/w.bin": repos.pointer(DATA), "docs/film.bin": repos.pointer(b"not wanted"),
        "web/app.js": "tracked, so not carried\n", "manifest.yaml": yaml_document.dump(WORKSPACE)})
    repos.submodule(user, outer, "third_party/outer", "--name", "a name")
    repos.submodule(user, other, "third_party/other")
    (user / "build").mkdir()
    (user / "build" / "made.txt").write_text("whole\n")
    (user / "third_party/outer/outer.h").write_text("changed in the user's folder\n")
    if store:
        repos.store(user, DATA)
    return user


WHOLE = {"src/ops/kernel.py", "third_party/outer/.gitmodules", "bench/run.py", ".gitattributes",
         ".gitignore", ".gitmodules", "data/w.bin", "third_party/outer/outer.h",
         "third_party/outer/deps/in/inner.h"}


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")
            if path.is_file() and path.relative_to(folder).parts[0] != ".git"}


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    user = project_with_all_kinds(tmp_path)
    made = campaigns.campaigns.create(tmp_path / "w", user / "manifest.yaml")
    for name in ("inner", "outer", "other"):  # checkouts must not need them
        (tmp_path / name).rename(tmp_path / f"{name}.away")
    return made


def test_checkouts_of_copy_have_submodules_lfs_and_built_files(setup: Setup) -> None:
    repo, folder = setup.repo, setup.folder.path
    assert repo.missing == ()
    for checkout in (repo.worktree("s", repo.base), setup.tree(repo.base)):
        assert files(checkout) == WHOLE | {"build/made.txt"}
        assert (checkout / "data/w.bin").read_bytes() == DATA
        assert (checkout / "third_party/outer/outer.h").read_text() == "whole\n"
    assert files(folder / "extracted") == WHOLE
    assert (folder / "extracted/data/w.bin").read_bytes() == DATA
    user = Path(setup.manifest.project)
    assert (folder / "ORIGIN_COMMIT").read_text().strip() == repos.git(user, "rev-parse", "HEAD")
    submodule_commit = repos.git(user, "ls-tree", "HEAD", "third_party/outer")
    assert submodule_commit in repos.git(folder / "extracted", "ls-tree", "-r", "HEAD").splitlines()


def test_only_kernel_change_is_captured_from_copy(setup: Setup) -> None:
    repo = setup.repo
    tree = repo.worktree("s", repo.base)
    for name in ("third_party/outer/outer.h", "third_party/outer/new.h", "build/made.txt",
                 "third_party/outer/deps/in/inner.h", "data/w.bin"):
        (tree / name).write_text("changed by a worker\n")
    assert not repo.capture(tree, repo.base, setup.edit).patch.files
    (tree / "src/ops/kernel.py").write_text(benchmark_case.kernel(80.0))
    patch = repo.capture(tree, repo.base, setup.edit).patch
    assert [file.path for file in patch.files] == ["src/ops/kernel.py"]


def patch_of_kernel_and(setup: Setup, name: str) -> bytes:
    """Return a patch that changes the kernel and the file `name`."""
    before = {"third_party/outer/outer.h": "whole", "data/w.bin": repos.pointer(DATA).rstrip()}
    kernel = kernel_patch(setup)
    if name == "third_party/outer":
        sha = repos.git(Path(setup.manifest.project), "rev-parse", "HEAD:third_party/outer")
        return kernel + (f"diff --git a/{name} b/{name}\nindex {sha[:7]}..1111111 160000\n"
                         f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-Subproject commit {sha}\n"
                         f"+Subproject commit {'1' * 40}\n").encode()
    if name not in before:
        return kernel + (f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n"
                         f"+++ b/{name}\n@@ -0,0 +1 @@\n+mine\n").encode()
    lines = before[name].splitlines()
    return kernel + (f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n"
                     f"@@ -1,{len(lines)} +1 @@\n" + "".join(f"-{line}\n" for line in lines)
                     + "+mine\n").encode()


def kernel_patch(setup: Setup) -> bytes:
    user = Path(setup.manifest.project)
    (user / "src/ops/kernel.py").write_text(benchmark_case.kernel(80.0))
    made = repos.git(user, "diff", "src/ops/kernel.py")
    repos.git(user, "checkout", "-q", "src/ops/kernel.py")
    return made.encode() + b"\n"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "outcome"), [
    ("third_party/outer", "is a submodule"),
    ("third_party/outer/outer.h", "third_party/outer/outer.h: does not exist in index"),
    ("third_party/outer/new.h", "appears as both a file and as a directory"),
    ("data/w.bin", "matches no edit glob"),
    ("build/made.txt", "left out: build folder"),
    ("web/app.js", "left out: new file that `edit` does not include")])
def test_other_files_of_patch_are_refused_or_dropped(setup: Setup, name: str,
                                                     outcome: str) -> None:
    try:
        applied = setup.repo.take(setup.repo.base, patch_of_kernel_and(setup, name), setup.edit)
    except InputError as error:
        assert outcome in str(error)
        return
    broken = violations(applied.patch, setup.edit, setup.frozen)
    if outcome.startswith("left out"):
        assert not broken and [file.path for file in applied.patch.files] == ["src/ops/kernel.py"]
        [left] = applied.patch.dropped
        assert (left.path, f"left out: {left.reason}") == (name, outcome)
    else:
        assert (name, outcome) in [(problem.path, problem.detail) for problem in broken]


@pytest.mark.slow
def test_campaign_on_copy_with_submodules_hands_over_kernel(setup: Setup) -> None:
    (setup.folder.inbox / "given.patch").write_bytes(kernel_patch(setup))
    (setup.folder.inbox / "more.patch").write_bytes(
        patch_of_kernel_and(setup, "third_party/outer/new.h"))
    campaigns.run(setup)
    ended = campaigns.campaign(setup)
    assert 1.2 < (ended.speedup or 0.0) < 1.3, ended.reason
    patch = kopt("merge", "--patch", workspace=setup.workspace)
    assert patch.returncode == 0 and patch.stdout.count("diff --git") == 1
    user = Path(setup.manifest.project)
    subprocess.run(["git", "apply", "--index"], cwd=user, input=patch.stdout, text=True, check=True)
    assert repos.git(user, "diff", "--cached", "--name-only") == "src/ops/kernel.py"
    assert (user / "src/ops/kernel.py").read_text() == benchmark_case.kernel(80.0)


def test_missing_contents_of_copy_are_reported(tmp_path: Path) -> None:
    """Only contents that the copy needs are reported: not the film in docs/."""
    user = project_with_all_kinds(tmp_path, store=False)
    repos.git(user, "submodule", "--quiet", "deinit", "--force", "third_party/outer")
    repos.git(user, "submodule", "--quiet", "deinit", "--force", "third_party/other")
    subprocess.run(["rm", "-rf", str(user / ".git/modules")], check=True)
    made = campaigns.campaigns.create(tmp_path / "w", user / "manifest.yaml")
    with campaigns.reading(made) as reader:
        payloads = [event.payload for event in reader.events_of(made.id, "warning")]
    [modules, stored] = made.repo.missing
    assert "from every checkout: third_party/outer (run" in modules
    assert "from every checkout: data/w.bin (run" in stored
    assert all(
        any(line[:60].encode() in payload for payload in payloads) for line in (modules, stored)
    )


def test_submodule_of_copy_is_found_by_name(tmp_path: Path) -> None:
    user = project_with_all_kinds(tmp_path)
    repos.git(user, "submodule", "--quiet", "deinit", "--force", "third_party/outer")
    made = campaigns.campaigns.create(tmp_path / "w", user / "manifest.yaml")
    assert made.repo.missing == () and files(made.tree(made.repo.base)) >= WHOLE


@pytest.mark.parametrize(("edited", "rebuilt"), [(False, []), (True, ["kernel.c", "slow.o"])])
def test_build_in_copy_continues_project_build(tmp_path: Path, edited: bool,
                                               rebuilt: list[str]) -> None:
    """Only what was built from uncommitted sources is built again."""
    user = with_build(tmp_path)
    if edited:
        (user / "kernel.c").write_text("int kernel(void) { return 9; }\n")
        make(user)
    copied = workspace_copy.commit_copy(
        find(user), ("Makefile", "kernel.c", "slow.c"), tmp_path / "extracted"
    )
    repo = CampaignRepo.create(tmp_path / "c", "rms", copied, carry=BUILT, origin=find(user))
    assert make(repo.worktree("s", repo.base)) == rebuilt


def test_error_for_carry_without_match_is_one_line(tmp_path: Path) -> None:
    user = project_with_all_kinds(tmp_path)
    (user / "build" / "made.txt").unlink()
    with pytest.raises(InputError, match=r"has no files that match build/\*\*, web/\*\*"):
        campaigns.campaigns.create(tmp_path / "w", user / "manifest.yaml")
    assert not [path for path in (tmp_path / "w").iterdir() if path.is_dir()]
