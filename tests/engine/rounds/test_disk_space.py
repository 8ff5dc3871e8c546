"""Disk space is measured and freed before a round; too little is an error of one line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from engine.repository.campaign_repo import CampaignRepo
from engine.rounds import disk_space
from harness.errors import EnvironmentFault
from tests.support import repos
from tests.support.paths import KIB, fill


def campaign(root: Path, *trees: str) -> Path:
    folder = root / "campaign"
    for tree in trees:
        fill(folder / "trees" / tree / "kernel.c", 100)
    return folder


def test_folder_size_counts_blocks_once_and_no_links(tmp_path: Path) -> None:
    file = fill(tmp_path / "here" / "deep" / "one", 100)
    (tmp_path / "here" / "link").symlink_to(fill(tmp_path / "elsewhere", 500))
    assert 100 * KIB <= disk_space.used(tmp_path / "here") < 120 * KIB
    os.link(file, tmp_path / "here" / "again")  # the same blocks
    assert disk_space.used(tmp_path / "here") < 120 * KIB
    assert disk_space.used(tmp_path / "nowhere") == 0


def test_trim_keeps_only_trees_in_use(tmp_path: Path) -> None:
    folder = campaign(tmp_path, "base", "best", "old", "older")
    fill(folder / "worktrees" / "fixed-1" / "kernel.c", 50)
    (folder / "worktrees" / "fixed-1").chmod(0o500)
    (folder / "trees" / "out").symlink_to(tmp_path)
    precious = fill(folder / "patches" / "kept.patch", 1)
    freed = disk_space.trim(folder, {"base", "best"})
    assert sorted(p.name for p in (folder / "trees").iterdir()) == ["base", "best"]
    assert not list((folder / "worktrees").iterdir()) and precious.exists()
    assert 250 * KIB <= freed < 300 * KIB and tmp_path.is_dir()


def test_trimmed_tree_is_checked_out_again(tmp_path: Path) -> None:
    repo = CampaignRepo.create(tmp_path / "campaign", "rms", repos.project(tmp_path / "user"))
    tree = repo.tree_of(repo.base)
    place = repo.folder / "trees" / tree
    for _ in range(2):
        repo.checkout_tree(tree, place)
        assert (place / "kernel.c").read_text() == repos.KERNEL
        assert disk_space.trim(repo.folder, ()) > 0 and not place.exists()


def test_need_of_a_round_grows_with_slots_devices_and_cache(tmp_path: Path) -> None:
    folder = campaign(tmp_path, "base")
    base_bytes = disk_space.need(folder, base_tree="base", slots=1)
    assert base_bytes >= 600 * KIB
    assert disk_space.need(folder, base_tree="base", slots=11) - base_bytes >= 2000 * KIB
    assert disk_space.need(folder, base_tree="base", slots=1, cards=8) - base_bytes >= 2800 * KIB
    fill(folder / "jit" / "warm" / "k", 1000)
    assert disk_space.need(folder, base_tree="base", slots=1) - base_bytes >= 3000 * KIB


def test_enough_room_gives_no_notice(tmp_path: Path) -> None:
    folder = campaign(tmp_path, "base", "best", "old")
    assert disk_space.make_room(folder, base_tree="base", slots=4, keep=("best",)) == ""
    assert not (folder / "trees" / "old").exists() and (folder / "trees" / "best").exists()


def test_clean_up_notice_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "NOTICE_BYTES", 90 * KIB)
    notice = disk_space.make_room(campaign(tmp_path, "base", "old"), base_tree="base", slots=1)
    assert notice.startswith("removed 100 KiB of checkouts") and "\n" not in notice


def test_too_little_room_is_an_error_before_the_round(tmp_path: Path) -> None:
    folder = campaign(tmp_path, "base")
    fill(folder / "scratch" / "verify-0" / "left", 100)
    with pytest.raises(EnvironmentFault, match="a round of 1000000000 slots needs about") as error:
        disk_space.make_room(folder, base_tree="base", slots=10**9)
    assert "kopt prune" in str(error.value) and "\n" not in str(error.value)
    assert not list((folder / "scratch").iterdir()), "the scratch folder was cleared to make room"


@pytest.mark.parametrize(("most_kib", "fits"), [(10_000, True), (900, True), (500, False)])
def test_disk_budget_is_enforced_after_clean_up(tmp_path: Path, most_kib: int, fits: bool) -> None:
    folder = campaign(tmp_path, "base", "old")  # 100 KiB stay, a round of one slot needs 600
    fill(folder / "scratch" / "left", 100)

    def make_room() -> str:
        return disk_space.make_room(folder, base_tree="base", slots=1, limit_bytes=most_kib * KIB)

    if fits:
        make_room()
    else:
        with pytest.raises(EnvironmentFault, match=r"its budget is 500 KiB"):
            make_room()
    assert (folder / "scratch" / "left").exists() is fits


def test_full_file_system_is_an_error(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(small)],
                             capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        folder = campaign(small, "base")
        with pytest.raises(EnvironmentFault,
                           match=r"needs about [\d.]+ MiB, but only 7\.9 MiB are free"):
            disk_space.make_room(folder, base_tree="base", slots=1)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)


def test_only_disposable_folders_of_ended_campaign_are_listed(tmp_path: Path) -> None:
    folder = tmp_path / "campaign"
    for name in (*disk_space.DISPOSABLE, "repo.git/kopt/index-dead", "patches", "rounds",
                 "carried"):
        (folder / name).mkdir(parents=True)
    (folder / "scratch").rmdir()
    (folder / "scratch").symlink_to(tmp_path)
    names = {str(path.relative_to(folder)) for path in disk_space.disposable(folder)}
    assert names == {"worktrees", "trees", "jit", "repo.git/kopt/index-dead"}
