"""Compiler caches are private to each run of a candidate and seeded with the baseline's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine.campaign import baseline_cache
from engine.repository.campaign_repo import CampaignRepo
from engine.verify import canary
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.workdir import CommandEnvironment, WorkingCopy
from harness.benchmark.verdict import canary_check as harness_canary
from harness.compile import compiler_cache
from harness.devices import inventory
from harness.formats import file_copy
from harness.formats.file_copy import FolderTooLarge, copy_file, copy_folder
from harness.isolation import guard
from harness.settings import Settings, Trees
from harness.verdict import Verdict, rejected
from tests.support import repos
from tests.support.benchmark_case import BENCH, FILES, KERNEL, judge, kernel, target


def home_with(path: Path, **files: str) -> Path:
    """Return a HOME with compiled files; `__` in a name stands for `/`."""
    for name, text in files.items():
        place = path / "jit" / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return path


def settings_for(campaign: Path, purpose: str) -> dict[str, str]:
    """Return the cache settings of a campaign's verdict for a purpose."""
    return {"warm_cache": baseline_cache.warm_for(campaign, purpose),
            "keep_cache": baseline_cache.keep_for(campaign, purpose)}


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


# where caches lie

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
    assert len(set(compiler_cache.environment(tmp_path).values())) == len(compiler_cache.VARIABLES)


# seeds

def test_writes_to_a_seeded_copy_do_not_reach_the_kept_cache(tmp_path: Path) -> None:
    campaign = tmp_path / "campaign"
    campaign.mkdir()
    home = home_with(tmp_path / "base", triton__ab__k="cubin", aiter__m__so="library")
    assert baseline_cache.keep(campaign, home).files == 2
    warm = baseline_cache.cache_folder(campaign)
    before = contents(warm)
    slots = [tmp_path / "slots" / name for name in ("a", "b")]
    for slot in slots:
        assert baseline_cache.seed(campaign, slot).files == 2
    mine = slots[0] / "jit" / "triton" / "ab" / "k"
    with mine.open("r+") as file:  # in place, as a hard link would pass it on
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
    assert baseline_cache.keep(tmp_path, home).files == 2
    assert not list(baseline_cache.cache_folder(tmp_path).rglob("*.lock"))
    assert all(not p.stat().st_mode & 0o222
               for p in baseline_cache.cache_folder(tmp_path).rglob("k*"))
    assert (
        baseline_cache.keep(tmp_path, home_with(tmp_path / "later", triton__k="second")).files == 0
    )
    assert (baseline_cache.cache_folder(tmp_path) / "triton" / "k").read_text() == "first"


def test_missing_cache_seeds_nothing(tmp_path: Path) -> None:
    assert baseline_cache.seed(tmp_path, tmp_path / "slot").files == 0
    assert baseline_cache.keep(tmp_path, tmp_path / "empty").files == 0
    (tmp_path / "bare" / "jit").mkdir(parents=True)
    assert baseline_cache.keep(tmp_path, tmp_path / "bare").files == 0
    assert not baseline_cache.cache_folder(tmp_path).exists() and not baseline_cache.drop(tmp_path)


def test_home_with_compiled_code_is_not_seeded(tmp_path: Path) -> None:
    baseline_cache.keep(tmp_path, home_with(tmp_path / "base", triton__k="warm"))
    mine = home_with(tmp_path / "slot", triton__k="mine")
    assert baseline_cache.seed(tmp_path, mine).files == 0
    assert contents(mine / "jit") == {"triton/k": "mine"}


def test_tritons_file_lists_name_the_copy(tmp_path: Path) -> None:
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
    assert baseline_cache.keep(tmp_path, home_with(tmp_path / "base", triton__k="four")).files == 0
    assert not baseline_cache.cache_folder(tmp_path).exists()
    assert not baseline_cache.cache_folder(tmp_path).with_name("warm.new").exists()


def test_dropped_cache_does_not_come_back(tmp_path: Path) -> None:
    home = home_with(tmp_path / "base", triton__k="warm")
    baseline_cache.keep(tmp_path, home)
    assert baseline_cache.drop(tmp_path) and not baseline_cache.drop(tmp_path)
    assert baseline_cache.keep(tmp_path, home).files == 0
    assert baseline_cache.seed(tmp_path, tmp_path / "slot").files == 0


# copies

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
    assert (copied.files, copied.bytes) == (1, 1)
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


# verdicts on a command target

COMPILES = """\
import os
cache = os.path.join(os.environ["TRITON_CACHE_DIR"], "compiled")
"""
NEEDS_WARM = COMPILES + "assert open(cache).read() == 'by the baseline', 'cold'\n"


def test_candidate_starts_with_the_baselines_compiled_code(tmp_path: Path) -> None:
    base = kernel(100.0, COMPILES + "os.makedirs(os.path.dirname(cache), exist_ok=True)\n"
                  "if not os.path.exists(cache): open(cache, 'w').write('by the baseline')\n")
    settings = settings_for(tmp_path, baseline_cache.BASELINE)
    assert judge(tmp_path / "1", base, incumbent=base, **settings).correct
    assert contents(baseline_cache.cache_folder(tmp_path))["triton/compiled"] == "by the baseline"
    settings = settings_for(tmp_path, "verify")
    candidate = kernel(50.0, NEEDS_WARM + "open(cache, 'r+').write('BY ANOTHER')\n")
    for name in ("candidate", "next"):  # what the first one writes, the second does not see
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.py").write_text(candidate)
        side = WorkingCopy(name, tmp_path / name, tmp_path / f"of-{name}",
                    CommandEnvironment(warm=settings["warm_cache"]))
        side.run("python kernel.py")
        with pytest.raises(BenchmarkFault, match="cold"):
            side.run("python kernel.py")
    with pytest.raises(BenchmarkFault, match="No such file"):
        WorkingCopy("cold", tmp_path / "next", tmp_path / "of-cold", CommandEnvironment()).run(
            "python kernel.py"
        )


COLD = """\
import os, time
os.makedirs(os.environ["TRITON_CACHE_DIR"], exist_ok=True)
cache = os.path.join(os.environ["TRITON_CACHE_DIR"], "tries")
with open(cache, "a") as file: file.write("x")
if os.path.getsize(cache) <= {slow}: time.sleep(1000)
"""


@pytest.mark.parametrize(("slow", "correct"), [(1, True), (2, False)])
def test_cold_compile_that_times_out_is_tried_once_more(tmp_path: Path, slow: int,
                                                        correct: bool) -> None:
    verdict = judge(tmp_path, kernel(50.0, COLD.format(slow=slow)), wanted=target(timeout_s=1.0))
    assert verdict.correct is correct
    assert correct or verdict.rejected_reason == "ran past its limit of 1 s"


def test_hanging_run_with_a_warm_cache_is_not_repeated(tmp_path: Path) -> None:
    hangs = COLD.format(slow=0) + "if os.path.getsize(cache) == 2: time.sleep(1000)\n"
    verdict = judge(tmp_path, kernel(50.0, hangs), wanted=target(timeout_s=1.0))
    assert verdict.rejected_reason == "ran past its limit of 1 s"


@pytest.mark.parametrize(("language", "verdict", "again"), [
    ("triton", rejected("class a: ran past its limit of 300 s"), True),
    ("python", rejected("load: ran past its limit of 180 s"), True),
    ("c", rejected("class a: ran past its limit of 40 s"), False),
    ("triton", rejected("class a: crashed (SIGSEGV)"), False),
    ("triton", Verdict(valid=True, correct=False), False),
])
def test_only_kernels_that_timed_out_cold_are_judged_again(language: str, verdict: Verdict,
                                                           again: bool) -> None:
    assert baseline_cache.cold_timeout(verdict, language) is again


# the canary and a cache that goes by names

BY_NAME = """\
import os, pathlib
place = pathlib.Path(os.environ["AITER_JIT_DIR"]) / "kernel.py"
if not place.exists():
    source = pathlib.Path("kernel.py").read_text()
    compile(source, "kernel.py", "exec")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(source)
import sys
sys.path.insert(0, str(place.parent))
"""


@pytest.mark.slow
def test_cache_that_hides_changes_is_dropped(tmp_path: Path) -> None:
    """Its seed would run the library compiled for the baseline for every candidate."""
    bench = BY_NAME + BENCH
    files = {"bench.py": bench}
    assert judge(tmp_path / "base", KERNEL, files=files,
                 **settings_for(tmp_path, baseline_cache.BASELINE)).correct
    repo = CampaignRepo.create(tmp_path / "c", "rms", repos.project(
        tmp_path / "user", {**FILES, "bench.py": bench}))
    asked: list[dict[str, str]] = []

    def ask(tree: str) -> Verdict:
        asked.append(settings_for(tmp_path, canary.PURPOSE))
        place = tmp_path / f"tree-{len(asked)}"
        repo.checkout_tree(tree, place / "broken")
        repo.checkout_tree(repo.base, place / "whole")
        trees = Trees(candidate=str(place / "broken"), incumbent=str(place / "whole"),
                      reference=str(place / "whole"))
        return harness_canary.check_canary(target(), trees, inventory.find("cpu"), Settings(
            scratch=str(place / "scratch"), canary=True, **asked[-1]))

    warnings = canary.check(ask, repo, repo.base, edit=("kernel.py",), frozen=("bench.py",),
                             drop_cache=lambda: baseline_cache.drop(tmp_path))
    assert warnings == (canary.STALE,) and len(asked) == 2
    faster = judge(tmp_path / "after", kernel(50.0), files=files,
                   **settings_for(tmp_path, "verify"))
    assert faster.speedup == pytest.approx(2.0, rel=0.05)


@pytest.mark.slow
def test_triton_reads_the_copy(tmp_path: Path) -> None:
    """Uses the cache manager of the installed Triton."""
    pytest.importorskip("triton")
    write = ("from triton.runtime.cache import FileCacheManager as F\nf = F('ab' * 32)\n"
             "path = f.put(b'cubin', 'k.cubin')\nf.put_group('k.json', {'k.cubin': path})\n")
    read = ("from triton.runtime.cache import FileCacheManager as F\nf = F('ab' * 32)\n"
            "print(f.get_group('k.json')['k.cubin'])\n")
    import sys
    for home, code in ((tmp_path / "base", write), (tmp_path / "slot", read)):
        home.mkdir()
        if home.name == "slot":
            baseline_cache.seed(tmp_path, home)
        outcome = guard.run([sys.executable, "-c", code], cwd=home,
                            env=guard.clean_env(compiler_cache.private({}, home), home=home))
        assert outcome.ok, outcome.stderr.decode()
        baseline_cache.keep(tmp_path, tmp_path / "base")
    assert outcome.stdout.decode().startswith(str(tmp_path / "slot"))


