"""Snapshots: kopt works on a project's files as they are, and changes nothing there."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from engine.repository import current_files
from engine.repository.campaign_repo import SNAPSHOT, CampaignRepo
from harness.errors import InputError
from tests.support import repos


@pytest.fixture
def user(tmp_path: Path) -> Path:
    return repos.project(tmp_path / "user")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


def state_of(project: Path) -> tuple[object, ...]:
    """Return all that git and the file system know of a project, its objects too."""
    return (repos.git(project, "status", "--porcelain"), repos.git(project, "for-each-ref"),
            (project / ".git" / "index").read_bytes(), sorted(project.rglob("*")))


def clone(project: Path, folder: Path) -> CampaignRepo:
    return CampaignRepo.create(folder / "c", "rms", current_files.take(project, folder))


def test_project_without_changes_is_taken_as_its_commit(user: Path, folder: Path) -> None:
    (user / "a.tmpfile").write_text("ignored")
    taken = current_files.take(user, folder)
    assert (taken.head, taken.snapshot) == (repos.git(user, "rev-parse", "HEAD"), "")


def test_snapshot_has_changed_new_and_no_deleted_or_ignored_files(user: Path, folder: Path) -> None:
    (user / "kernel.c").write_text("half done")
    (user / "new.yaml").write_text("mine")
    (user / "reference.py").unlink()
    (user / "a.tmpfile").write_text("ignored")
    (user / ".git/info/exclude").write_text("*.private\n")
    for built in ("k.o", "libk.so", "x.private", "__pycache__/k.pyc"):
        (user / built).parent.mkdir(exist_ok=True)
        (user / built).write_text("built")
    before = state_of(user)
    repo = clone(user, folder)
    assert state_of(user) == before
    assert set(repo.files(repo.base)) == {*repos.FILES, "new.yaml"} - {"reference.py"}
    assert repo.read(repo.base, "kernel.c") == b"half done"
    assert repo.git.line("rev-parse", f"{repo.base}^") == repos.git(user, "rev-parse", "HEAD")
    assert repo.git.find(SNAPSHOT) == repo.base


def test_snapshot_names_the_files_that_are_not_committed(user: Path, folder: Path) -> None:
    (user / "kernel.c").write_text("half done")
    (user / "task2.yaml").write_text("mine")
    assert current_files.take(user, folder).snapshot == \
        "not committed: kernel.c, task2.yaml; kopt works on the files as they are now"


def test_change_after_staging_is_taken_from_the_folder(user: Path, folder: Path) -> None:
    (user / "kernel.c").write_text("staged")
    repos.git(user, "add", "kernel.c")
    (user / "kernel.c").write_text("newer")
    repo = clone(user, folder)
    assert repo.read(repo.base, "kernel.c") == b"newer"


def test_edit_of_the_same_size_in_the_second_of_the_commit_is_seen(user: Path,
                                                                   folder: Path) -> None:
    kernel, index, then = user / "kernel.c", user / ".git" / "index", time.time() - 10
    same_second = False
    while not same_second:  # git compares times by the second
        kernel.write_text("first ")
        os.utime(kernel, (then, then))
        repos.git(user, "add", "kernel.c")
        committed_at = kernel.stat().st_ctime
        kernel.write_text("second")
        os.utime(kernel, (then, then))
        same_second = int(committed_at) == int(kernel.stat().st_ctime)
    os.utime(index, (then, then))
    repo = clone(user, folder)
    assert repo.read(repo.base, "kernel.c") == b"second"


def test_folder_without_a_repository_and_without_a_commit_work(
        tmp_path: Path, folder: Path) -> None:
    for name, words in (("plain", "is not a git repository"),
                        ("unborn", "not committed: kernel.c")):
        project, temporary = tmp_path / name, folder / name
        temporary.mkdir()
        project.mkdir()
        (project / "kernel.c").write_text("int x;\n")
        if name == "unborn":
            repos.git(project, "init", "-q")
        taken = current_files.take(project, temporary)
        assert words in taken.snapshot and taken.is_repository == (name == "unborn")
        repo = CampaignRepo.create(temporary / "c", "rms", taken)
        assert repo.files(repo.base) == ["kernel.c"]
        assert [path.name for path in project.iterdir() if path.name != ".git"] == ["kernel.c"]


def test_folder_inside_a_repository_is_copied_without_ignored_files(
        user: Path, folder: Path) -> None:
    (user / "src" / "new.c").write_text("int x;\n")
    (user / "src" / "a.tmpfile").write_text("ignored")
    before = state_of(user)
    taken = current_files.take(user / "src", folder)
    repo = CampaignRepo.create(folder / "c", "rms", taken)
    assert repo.files(repo.base) == ["deep/helper.h", "new.c"]
    assert f"lies inside the repository {user}" in taken.snapshot and not taken.is_repository
    assert state_of(user) == before


def test_contents_of_lfs_files_are_not_a_change(user: Path, folder: Path) -> None:
    data = b"\0weights" * 100
    repos.commit(user, {".gitattributes": "*.bin filter=lfs -text\n",
                        "w.bin": repos.pointer(data)})
    (user / "w.bin").write_bytes(data)
    assert current_files.take(user, folder).snapshot == ""


def test_linked_and_shallow_projects_give_snapshots(
        tmp_path: Path, user: Path, folder: Path) -> None:
    repos.commit(user, {"kernel.c": "int x;\n"}, "second")
    repos.git(user, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    repos.git(tmp_path, "clone", "-q", "--depth=1", f"file://{user}", "shallow")
    for name in ("linked", "shallow"):
        (tmp_path / name / "kernel.c").write_text("changed")
        (folder / name).mkdir()
        repo = clone(tmp_path / name, folder / name)
        assert repo.read(repo.base, "kernel.c") == b"changed"
        assert repo.publish() == ""


def test_too_many_bytes_are_refused_and_the_largest_file_is_named(
        user: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_files, "MOST_BYTES", 1000)
    (user / "data.bin").write_bytes(bytes(2000))
    with pytest.raises(InputError, match=r"1 file of .* more than .* the largest is data\.bin"):
        current_files.take(user, folder)
