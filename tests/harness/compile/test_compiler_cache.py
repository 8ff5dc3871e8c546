"""Compiler caches are private to each run of a candidate and seeded with the baseline's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.campaign import baseline_cache
from harness.compile import compiler_cache
from harness.formats import file_copy
from harness.formats.file_copy import FolderTooLarge, copy_file, copy_folder


def home_with(path: Path, **files: str) -> Path:
    """Return a HOME with compiled files; `__` in a name stands for `/`."""
    for name, text in files.items():
        place = path / "jit" / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return path


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "AITER_JIT_DIR",
                                  "KOPT_JIT_CACHE_DIR", "TORCH_EXTENSIONS_DIR"])
def test_every_cache_lies_in_a_private_home(name: str, tmp_path: Path) -> None:
    shared = {name: "/shared/cache", "OTHER": "kept"}
    one, two = (
        compiler_cache.private(shared, tmp_path / "one"),
        compiler_cache.private(shared, tmp_path / "two"),
    )
    assert one[name].startswith(str(tmp_path / "one" / "jit")) and one[name] != two[name]
    assert one["OTHER"] == "kept"
    folders = [value for value in compiler_cache.environment(tmp_path).values() if value != "1"]
    assert len(set(folders)) == len(compiler_cache.VARIABLES)


def test_writes_to_a_seeded_copy_do_not_reach_the_kept_cache(tmp_path: Path) -> None:
    campaign = tmp_path / "campaign"
    campaign.mkdir()
    home = home_with(tmp_path / "base", triton__ab__k="cubin", aiter__m__so="library")
    assert baseline_cache.keep(campaign, home) == 2
    warm = baseline_cache.cache_folder(campaign)
    before = contents(warm)
    slots = [tmp_path / "slots" / name for name in ("a", "b")]
    for slot in slots:
        assert baseline_cache.seed(campaign, slot) == 2
    mine = slots[0] / "jit" / "triton" / "ab" / "k"
    with mine.open("r+") as file:  # in place: a hard link's write would reach the kept file
        file.write("EVIL!")
    (slots[0] / "jit" / "aiter" / "m" / "so").unlink()
    (slots[0] / "jit" / "triton" / "new").write_text("more")
    assert contents(warm) == before
    assert contents(slots[1] / "jit") == {"triton/ab/k": "cubin", "aiter/m/so": "library"}
    shared = {p.stat().st_ino for p in warm.rglob("*") if p.is_file()}
    for slot in slots:
        assert not any(p.stat().st_ino in shared for p in slot.rglob("*") if p.is_file())
        assert all(os.access(p, os.W_OK) and p.stat().st_mode & 0o200
                   for p in (slot / "jit").rglob("*") if p.is_file())


def test_cache_is_kept_once(tmp_path: Path) -> None:
    home = home_with(tmp_path / "base", triton__k="first", triton__k_lock="x")
    (home / "jit" / "triton" / "k.lock").write_text("held")
    assert baseline_cache.keep(tmp_path, home) == 2
    assert not list(baseline_cache.cache_folder(tmp_path).rglob("*.lock"))
    assert all(not p.stat().st_mode & 0o222
               for p in baseline_cache.cache_folder(tmp_path).rglob("k*"))
    assert (
        baseline_cache.keep(tmp_path, home_with(tmp_path / "later", triton__k="second")) == 0
    )
    assert (baseline_cache.cache_folder(tmp_path) / "triton" / "k").read_text() == "first"


def test_missing_cache_seeds_nothing(tmp_path: Path) -> None:
    assert baseline_cache.seed(tmp_path, tmp_path / "slot") == 0
    assert baseline_cache.keep(tmp_path, tmp_path / "empty") == 0
    (tmp_path / "bare" / "jit").mkdir(parents=True)
    assert baseline_cache.keep(tmp_path, tmp_path / "bare") == 0
    assert not baseline_cache.cache_folder(tmp_path).exists() and not baseline_cache.drop(tmp_path)


def test_home_with_compiled_code_is_not_seeded(tmp_path: Path) -> None:
    baseline_cache.keep(tmp_path, home_with(tmp_path / "base", triton__k="warm"))
    mine = home_with(tmp_path / "slot", triton__k="mine")
    assert baseline_cache.seed(tmp_path, mine) == 0
    assert contents(mine / "jit") == {"triton/k": "mine"}


def test_tritons_file_lists_have_the_paths_of_the_copy(tmp_path: Path) -> None:
    """They contain absolute paths; unchanged, every slot would read the baseline's files."""
    home = home_with(tmp_path / "base", triton__ab__k="cubin")
    listed = home / "jit" / "triton" / "ab" / "__grp__k.json"
    listed.write_text(json.dumps({"child_paths": {"k": str(listed.with_name("k"))}}))
    baseline_cache.keep(tmp_path, home)
    baseline_cache.seed(tmp_path, tmp_path / "slot")
    found = tmp_path / "slot" / "jit" / "triton" / "ab"
    assert json.loads((found / "__grp__k.json").read_text()) == {
        "child_paths": {"k": str(found / "k")}}
    group = baseline_cache.cache_folder(tmp_path) / "triton/ab/__grp__k.json"
    assert str(home) in group.read_text()


def test_too_large_cache_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_cache, "MOST_BYTES", 3)
    assert baseline_cache.keep(tmp_path, home_with(tmp_path / "base", triton__k="four")) == 0
    assert not baseline_cache.cache_folder(tmp_path).exists()
    assert not baseline_cache.cache_folder(tmp_path).with_name("warm.new").exists()


def test_dropped_cache_does_not_come_back(tmp_path: Path) -> None:
    home = home_with(tmp_path / "base", triton__k="warm")
    baseline_cache.keep(tmp_path, home)
    assert baseline_cache.drop(tmp_path) and not baseline_cache.drop(tmp_path)
    assert baseline_cache.keep(tmp_path, home) == 0
    assert baseline_cache.seed(tmp_path, tmp_path / "slot") == 0


def test_copies_leave_out_links_that_lead_outside(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_text("x")
    os.utime(source / "deep" / "file", ns=(1, 1_600_000_000_123_456_789))
    (source / "near").symlink_to("deep/file")
    (source / "out").symlink_to("../secret")
    (source / "absolute").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe")
    (source / "deep" / "up").symlink_to("../near")
    copied = copy_folder(source, tmp_path / "target", most_bytes=100)
    assert sorted(str(p.relative_to(tmp_path / "target")) for p in
                  (tmp_path / "target").rglob("*")) == ["deep", "deep/file", "deep/up", "near"]
    assert copied == 1
    assert (tmp_path / "target" / "deep" / "file").stat().st_mtime_ns == 1_600_000_000_123_456_789


def test_too_large_copy_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(b"x" * 1000)
    with pytest.raises(FolderTooLarge):
        copy_folder(tmp_path / "source", tmp_path / "target", most_bytes=999)
    assert not (tmp_path / "target").exists()


def test_copy_is_not_written_through_a_planted_link(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("new")
    (tmp_path / "precious").write_text("old")
    (tmp_path / "target").symlink_to(tmp_path / "precious")
    copy_file(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "precious").read_text() == "old"
    assert (tmp_path / "target").read_text() == "new" and not (tmp_path / "target").is_symlink()
    with pytest.raises(OSError):
        (tmp_path / "link").symlink_to(tmp_path / "source")
        copy_file(tmp_path / "link", tmp_path / "other")


def test_files_are_cloned_where_possible_and_copied_elsewhere(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").write_bytes(os.urandom(100_000))
    for name in ("as it is", "none"):
        if name == "none":
            monkeypatch.setattr(file_copy, "FICLONE", 0)  # no such call: every file system refuses
            assert not copy_file(tmp_path / "source", tmp_path / name)
        else:
            copy_file(tmp_path / "source", tmp_path / name)
        assert (tmp_path / name).read_bytes() == (tmp_path / "source").read_bytes()
        (tmp_path / name).write_bytes(b"changed")
        assert (tmp_path / "source").stat().st_size == 100_000
