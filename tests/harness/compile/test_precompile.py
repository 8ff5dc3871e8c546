"""Configurations are compiled ahead, each in a folder of its own, and refused before they run."""

from __future__ import annotations

import math
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compile import compiler_cache, precompile, triton_aot
from harness.compile.compiler_cache import adopt
from harness.compile.kernel import Kernel
from harness.compile.place import Place, place_on
from harness.compile.precompile import Precompiler
from harness.devices.device import Device
from harness.isolation.process_outcome import Limits
from harness.isolation.zygote_client import Zygote
from harness.loop.quick_timing import BestQuickTimes
from harness.loop.screen_methods import Infeasible, require_launchable
from harness.loop.screening import Screening
from harness.search.space.tunable_source import TunableSource
from harness.search.trials.trials import SearchJob
from harness.settings import Settings
from tests.support.kernels.kernel_case import DOUBLE, target, tree
from tests.support.programs import shared_zygotes

SLEEP_S = 1.0
LIMITS = Limits(wall_s=60.0, output_bytes=1 << 20, memory_bytes=4 << 30)
CARD = Device(id="cuda:0", kind="nvidia", name="NVIDIA H200", uuid="GPU-1", arch="sm_90",
              memory_bytes=140 << 30)


@pytest.fixture(autouse=True)
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precompile, "LIMITS", LIMITS)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3)))  # two workers


@pytest.fixture
def zygote() -> Zygote:
    made = shared_zygotes.for_place(
        place_on(CARD, "triton", scratch="", python=None, env={}), "triton")
    assert made is not None
    return made


def compiler(folder: Path, zygote: Zygote) -> Precompiler:
    return Precompiler(target(), Path(tree(folder / "tree", DOUBLE)), "sm_90",
                       Place(scratch=str(folder / "ahead"), zygote=zygote))


def kernel_at(folder: Path, source: str) -> Kernel:
    folder.mkdir()
    (folder / "kernel.py").write_text(source)
    return Kernel(name="trial", target=target(), artifact=str(folder / "kernel.py"), sha256="",
                  identity="", root=str(folder), place=Place(device="cuda:0", scratch=str(folder)))


def test_precompiled_code_equals_that_of_another_process(tmp_path: Path, zygote: Zygote) -> None:
    with compiler(tmp_path, zygote) as made:
        key = made.expect(DOUBLE)
        assert made.expect(DOUBLE) == key
        ready = made.get(key)
        assert not ready.error and not ready.reasons and ready.resources[0].registers
        other = kernel_at(tmp_path / "elsewhere", DOUBLE)
        assert made.give(key, other) >= 1
        assert not list((tmp_path / "ahead" / key).rglob("kernel.py"))
        where = Path(
            compiler_cache.environment(other.home)["TRITON_CACHE_DIR"]
        )  # the cache folder of its runners
        assert list(where.glob("*/*.cubin"))
    scratch = tmp_path / "second"  # its cache is a copy of a runner's
    (scratch / "home-aot").mkdir(parents=True)
    assert adopt(where, triton_aot.cache_in(scratch)) >= 1
    before = sorted(triton_aot.cache_in(scratch).rglob("*"))
    stamps = {path: path.stat().st_mtime_ns for path in before}
    place = Place(scratch=str(scratch), zygote=zygote)
    found = triton_aot.inspect(target(), Path(other.root), "sm_90", place, cached=True)
    assert stamps == {
        path: path.stat().st_mtime_ns for path in triton_aot.cache_in(scratch).rglob("*")
    }
    assert found.signatures == (("*fp32", "*fp32", "i32", "constexpr"),)
    assert found.resources == ready.resources  # registers and no spills: the cubin tells them too

    longer = DOUBLE.replace("2 * tl.load", "4 * tl.load")
    Path(other.artifact).write_text(longer)
    triton_aot.inspect(target(), Path(other.root), "sm_90", place, cached=True)
    assert (
        len(list(triton_aot.cache_in(scratch).glob("*"))) == 2
    )  # another source is another kernel


FAULTS = {
    "crash": ("import os\nos._exit(3)\n", "exited with 3"),
    "signal": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "SIGSEGV"),
    "hang": ("import time\ntime.sleep(60)\n", "past its limit"),
    "syntax": ("def double(:\n", "kernel.py:1"),
    "elsewhere": ("open({outside!r}, 'w')\n", "Read-only file system"),
    "in another's": ("import os\nopen(os.path.join(os.environ['HOME'], '..', '..', 'x'), 'w')\n",
                     "Read-only file system"),
}


def test_compile_errors_are_returned_as_results(tmp_path: Path, zygote: Zygote,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    outside = str(tmp_path / "outside")
    monkeypatch.setattr(precompile, "LIMITS", replace(LIMITS, wall_s=3.0))
    with compiler(tmp_path, zygote) as made:
        keys = {name: made.expect(source.replace("{outside!r}", repr(outside)))
                for name, (source, _) in FAULTS.items()}
        good = made.expect(DOUBLE)
        for name, key in keys.items():
            ready = made.get(key)
            assert FAULTS[name][1] in ready.error and not ready.reasons, (name, ready)
        assert not made.get(good).error
        made.forget(good)
        assert not (tmp_path / "ahead" / good).exists()
    assert not os.path.exists(outside) and not (tmp_path / "ahead" / "x").exists()


def test_only_plain_files_of_a_planted_cache_are_copied(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    entry = tmp_path / "cache" / ("A" * 52)
    entry.mkdir(parents=True)
    (entry / "k.cubin").write_bytes(b"code")
    (entry / "k.json").write_text("{}")
    (entry / "k.ptx").symlink_to(secret)
    (entry / "__grp__k.json").write_text('{"child_paths": {"k.json": "/etc/passwd"}}')
    (entry / "tmp.pid").mkdir()
    os.mkfifo(entry / "k.llir")
    (tmp_path / "cache" / "not a key").mkdir()
    (tmp_path / "cache" / ("B" * 52)).symlink_to(entry)
    into = tmp_path / "into"
    assert adopt(tmp_path / "cache", into) == 1
    copied = into / ("A" * 52)
    assert sorted(path.name for path in copied.iterdir()) == ["__grp__k.json", "k.cubin", "k.json"]
    index = (copied / "__grp__k.json").read_text()
    assert str(copied / "k.cubin") in index and "passwd" not in index
    assert adopt(tmp_path / "none", into) == 0


@pytest.mark.parametrize("planted", ["the cache", "its folder", "an entry", "a part", "an index"])
def test_links_in_a_candidates_home_are_not_followed(planted: str, tmp_path: Path) -> None:
    """The unconfined harness must not write where a candidate's link points."""
    key, victim = "A" * 52, tmp_path / "victim"
    entry = tmp_path / "cache" / key
    entry.mkdir(parents=True)
    (entry / "k.json").write_text("evil")
    (victim / key).mkdir(parents=True)
    (victim / "mine").write_text("mine")
    home = tmp_path / "home"
    place = home.joinpath(*compiler_cache.TRITON)
    link = {"the cache": place, "its folder": place.parent, "an entry": place / key,
            "a part": place / key / ".k.json.part", "an index": place / key / "__grp__k.json"}
    link[planted].parent.mkdir(parents=True)
    link[planted].symlink_to(victim / "mine" if planted in ("a part", "an index") else victim)
    assert adopt(tmp_path / "cache", home, compiler_cache.TRITON) == 1
    assert (victim / "mine").read_text() == "mine"
    assert sorted(path.name for path in victim.rglob("*")) == [key, "mine"]
    assert (place / key / "k.json").read_text() == "evil" and not place.is_symlink()


def test_as_many_compile_at_a_time_as_there_are_workers(
        tmp_path: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeping = f"import time\ntime.sleep({SLEEP_S})\n"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)))
    with compiler(tmp_path, zygote) as made:
        assert made.get(made.expect(DOUBLE)).resources  # the first request waits for the zygote
        began = time.monotonic()
        keys = [made.expect(f"{sleeping}# {number}\n") for number in range(4)]
        assert all(made.get(key).error for key in keys)
        spent = time.monotonic() - began
        assert spent < len(keys) * SLEEP_S
        last = [made.expect(f"{sleeping}# late {number}\n") for number in range(9)]
        began = time.monotonic()
    assert time.monotonic() - began < 5  # closing ends what runs and what waits
    assert any(made.future(key).cancelled() for key in last)


def test_screening_refuses_unlaunchable_configurations_before_they_run(tmp_path: Path,
                                                                       zygote: Zygote) -> None:
    source = DOUBLE.replace("import torch", "WARPS = 4  # kopt: knob WARPS in [4, 64]\n"
                            "import torch").replace("(x, out, n)\n", "(x, out, n, "
                                                    "num_warps=WARPS)\n")
    at = tree(tmp_path / "tree", source)
    screen = Screening(
        target(),
        SearchJob(tree=at, reference=at),
        CARD,  # it does not exist: the screening is not entered
        Settings(scratch=str(tmp_path / "scratch")),
        TunableSource.parse(source, language="triton"),
        zygote=zygote,
    )
    try:
        assert screen.triton_builds is not None
        screen.expect([{"WARPS": 4}, {"WARPS": 64}, {"WARPS": 5}, {"NONE": 1}])
        assert len(screen.triton_builds._futures) == 2
        key = screen.triton_builds.expect(screen.source.apply({"WARPS": 4}))
        require_launchable(screen.triton_builds, key)
        key = screen.triton_builds.expect(screen.source.apply({"WARPS": 64}))
        with pytest.raises(Infeasible, match=r"cannot be launched.*2048 threads"):
            require_launchable(screen.triton_builds, key)
    finally:
        screen.close()


def test_quick_times_of_a_trial_are_compared_with_those_of_the_best_trial() -> None:
    leader = BestQuickTimes(target())
    assert leader.behind({"odd": 1e9}) == 0.0
    leader.take(None, {"odd": 1.0})
    leader.take(0.5, {"odd": 1000.0})
    leader.take(0.4, {"odd": 1.0})
    assert math.exp(leader.behind({"odd": 1600.0})) == pytest.approx(1.6)
    assert leader.latency_us({"odd": 1600.0}) == pytest.approx(1.6)
