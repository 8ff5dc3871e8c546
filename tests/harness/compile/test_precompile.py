"""Compiling ahead, racing, and sweeping a list of configurations."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compile import compiler_cache, triton_aot
from harness.compile.cache_adoption import adopt
from harness.compile.kernel import Kernel, Place, kind_of, place_on
from harness.compile.precompile import Ahead, Ready
from harness.devices import inventory
from harness.devices.device import Device
from harness.isolation.guard import Limits
from harness.isolation.zygote_client import Zygote
from harness.loop import racing
from harness.loop.screening import Screening
from harness.loop.sweep import Sweep
from harness.search.space import knobs
from harness.search.trials.trials import SearchJob
from harness.settings import Settings
from harness.timing.quick_timing import BestQuickTimes
from tests.support.kernel_case import DOUBLE, target, tree

LIMITS = Limits(wall_s=60.0, output_bytes=1 << 20, memory_bytes=4 << 30)
CARD = Device(id="cuda:0", kind="nvidia", name="NVIDIA H200", uuid="GPU-1", arch="sm_90",
              memory_bytes=140 << 30)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    kind = kind_of(place_on(CARD, "triton", scratch="", python=None, env={}), "triton")
    assert kind is not None
    made = Zygote.start(kind)
    yield made
    made.close()


def compiler(folder: Path, zygote: Zygote, **fields: Any) -> Ahead:
    return Ahead(target(), Path(tree(folder / "tree", DOUBLE)), "sm_90", folder / "ahead",
                 zygote=zygote, **{"limits": LIMITS, "workers": 2} | fields)


def kernel_at(folder: Path, source: str) -> Kernel:
    folder.mkdir()
    (folder / "kernel.py").write_text(source)
    return Kernel(name="trial", target=target(), artifact=str(folder / "kernel.py"), sha256="",
                  identity="", root=str(folder), place=Place(device="cuda:0", scratch=str(folder)))


def test_what_is_given_is_what_another_process_would_compile(tmp_path: Path,
                                                             zygote: Zygote) -> None:
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
        )  # as its runners have it
        assert list(where.glob("*/*.cubin"))
    scratch = tmp_path / "second"  # whose cache is the one that a runner would have
    (scratch / "home-aot").mkdir(parents=True)
    assert adopt(where, triton_aot.cache_in(scratch)) >= 1
    before = sorted(triton_aot.cache_in(scratch).rglob("*"))
    stamps = {path: path.stat().st_mtime_ns for path in before}
    found = triton_aot.inspected(target(), Path(other.root), "sm_90", scratch, cached=True,
                          zygote=zygote)
    assert stamps == {
        path: path.stat().st_mtime_ns for path in triton_aot.cache_in(scratch).rglob("*")
    }
    assert found.signatures == (("*fp32", "*fp32", "i32", "constexpr"),)
    assert found.resources == ready.resources  # registers and no spills: the cubin tells them too

    longer = DOUBLE.replace("2 * tl.load", "4 * tl.load")
    Path(other.artifact).write_text(longer)
    triton_aot.inspected(target(), Path(other.root), "sm_90", scratch, cached=True, zygote=zygote)
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


def test_what_goes_wrong_while_compiling_is_an_answer(tmp_path: Path, zygote: Zygote) -> None:
    outside = str(tmp_path / "outside")
    with compiler(tmp_path, zygote, limits=replace(LIMITS, wall_s=6.0)) as made:
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


def test_a_planted_cache_is_copied_as_plain_files_only(tmp_path: Path) -> None:
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
def test_links_in_a_candidates_home_lead_nowhere(planted: str, tmp_path: Path) -> None:
    """What the unconfined harness copies there must not land where a candidate points."""
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


def test_as_many_at_a_time_as_there_are_workers(tmp_path: Path, zygote: Zygote) -> None:
    sleeping = "import time\ntime.sleep(2)\n"
    with compiler(tmp_path, zygote, workers=4) as made:
        assert made.get(made.expect(DOUBLE)).resources  # whoever comes first waits for the zygote
        began = time.monotonic()
        keys = [made.expect(f"{sleeping}# {number}\n") for number in range(4)]
        assert all(made.get(key).error for key in keys)
        spent = time.monotonic() - began
        assert spent < sum(made.get(key).wall_s for key in keys) / 2
        last = [made.expect(f"{sleeping}# late {number}\n") for number in range(9)]
        began = time.monotonic()
    assert time.monotonic() - began < 10  # closing ends what runs and what waits
    assert any(made.future(key).cancelled() for key in last)


def test_a_screen_refuses_what_cannot_be_launched_before_it_is(tmp_path: Path,
                                                               zygote: Zygote) -> None:
    source = DOUBLE.replace("import torch", "WARPS = 4  # kopt: knob WARPS in [4, 64]\n"
                            "import torch").replace("(x, out, n)\n", "(x, out, n, "
                                                    "num_warps=WARPS)\n")
    at = tree(tmp_path / "tree", source)
    screen = Screening(
        target(),
        SearchJob(tree=at, reference=at),
        CARD,  # not entered: it is not here
        Settings(scratch=str(tmp_path / "scratch")),
        source,
        knobs.find(source, language="triton"),
        None,
        zygote,
    )
    try:
        assert screen.ahead is not None
        screen.expect([{"WARPS": 4}, {"WARPS": 64}, {"WARPS": 5}, {"NONE": 1}])
        assert len(screen.ahead._futures) == 2
        key = screen.ahead.expect(screen.source_of({"WARPS": 4}))
        screen._feasible(screen.ahead, key)
        screened = screen.measure({"WARPS": 64})
        assert screened.correctness == "REJECTED" and screened.latency_us is None
        assert "cannot be launched" in screened.reason and "2048 threads" in screened.reason
    finally:
        screen._close()


@pytest.mark.parametrize(("blocks", "bound", "out"), [
    ({"a": [100, 100], "b": [110, 111]}, 0.03, {"b"}),
    ({"a": [100, 100], "b": [105, 105]}, 0.03, set()),          # within what noise may do
    ({"a": [100, 300], "b": [104, 104]}, 0.03, set()),          # held up once: cut to the bound
    ({"a": [100], "b": [151]}, racing.FIRST_BOUND, {"b"}),
    ({"a": [100], "b": [149]}, racing.FIRST_BOUND, set()),
    ({"a": [100] * 90, "b": [104] * 90}, 0.03, {"b"}),          # many blocks say more than few
    ({"a": [100]}, 0.03, set()), ({}, 0.03, set()),
])
def test_who_is_out(blocks: dict[str, list[float]], bound: float, out: set[str]) -> None:
    race: racing.Race[str] = racing.Race(bound, entries=len(blocks))
    for key, times in blocks.items():
        for ns in times:
            race.add(key, ns)
    assert set(race.out()) == out
    assert set(race.halved(1)) == set(blocks) - set(race.order[:1])


@given(st.lists(st.floats(1.0, 3.0), min_size=1, max_size=12, unique=True), st.integers(0, 2**32))
@settings(max_examples=150)
def test_the_best_never_leaves_while_noise_is_within_its_bound(means: list[float],
                                                              seed: int) -> None:
    """Before the last heat's choice among near equals, whatever the blocks, at the extremes too."""
    rng = random.Random(seed)
    heats = (racing.Heat(blocks=3, bound=0.2), racing.Heat(blocks=5, bound=0.05))

    def timed(key: int) -> float:
        off = rng.choice((-1, 1, rng.uniform(-1, 1))) * min(h.bound for h in heats)
        return 1e5 * means[key] * math.exp(off)

    winner, why = racing.run(range(len(means)), timed, lambda _: True, heats)
    best = min(range(len(means)), key=lambda key: means[key])
    assert why.get(best, "no faster in the last heat") == "no faster in the last heat"
    assert winner is not None and means[winner] <= means[best] * math.exp(4 * 0.05)
    assert set(why) == set(range(len(means))) - {winner}


def test_nobody_loses_to_what_is_wrong_or_fails() -> None:
    times = {"wrong": 50.0, "good": 100.0, "near": 101.0, "slow": 160.0, "dies": 60.0}
    asked: list[str] = []

    def right(key: str) -> bool:
        asked.append(key)
        return key != "wrong"

    winner, why = racing.run(times, lambda key: math.inf if key == "dies" else times[key], right)
    assert winner == "good" and why["wrong"] == "wrong" and why["dies"] == "failed"
    assert "slower" in why["slow"] and "slow" not in asked
    assert racing.run(["wrong"], lambda _: 1.0, right)[0] is None


def test_how_far_first_blocks_are_behind() -> None:
    leader = BestQuickTimes(target())
    assert leader.behind({"odd": 1e9}) == 0.0
    leader.take(None, {"odd": 1.0})
    leader.take(0.5, {"odd": 1000.0})
    leader.take(0.4, {"odd": 1.0})
    assert math.exp(leader.behind({"odd": 1600.0})) == pytest.approx(1.6)
    assert leader.latency_us({"odd": 1600.0}) == pytest.approx(1.6)


class NothingToCompile(Ahead):
    """Stands in where kernels are Python: only knows what comes next and what is refused."""

    def _compile(self, key: str, source: str) -> Ready:
        return Ready(reasons=("told so",) if "WORK = 7 " in source else ())

    def give(self, key: str, kernel: Kernel) -> int:
        return 0


WORK = """import os, time, torch
WORK = 1  # kopt: knob WORK in [1, 2, 3, 4, 5, 6, 7]

def double(x, out):
    if WORK == 4:
        os._exit(9)
    if WORK == 5:
        raise RuntimeError("does not like it")
    end = time.perf_counter() + {1: 6e-4, 2: 3e-4, 3: 3e-3, 6: 1e-4}[WORK]
    while time.perf_counter() < end:
        pass
    out.copy_(x if WORK == 6 else 2 * x)
"""


def test_a_sweep_finds_the_fastest_that_is_right(tmp_path: Path) -> None:
    at = tree(tmp_path / "tree", WORK)
    task = target(language="python")
    screen = Screening(task, SearchJob(tree=at, reference=at), inventory.find("cpu"),
                    Settings(scratch=str(tmp_path / "scratch")), WORK,
                    knobs.find(WORK, language="python"), None, None)
    assert screen.ahead is None  # nothing is compiled here: neither Python nor what is interpreted
    screen.expect([{"WORK": 1}])
    screen.ahead = NothingToCompile(task, Path(at), "sm_90", tmp_path / "ahead", workers=1)
    with screen:
        swept = Sweep(screen, lanes=2).run([{"WORK": n} for n in (1, 3, 2, 4, 5, 6, 7, 8)])
    assert swept.winner == {"WORK": 2}, swept
    by = {entry.config["WORK"]: entry for entry in swept.entries}
    assert by[2].correctness == "PASS" and not by[2].reason
    assert "slower" in by[1].reason and "slower" in by[3].reason
    assert by[1].correctness is by[3].correctness is None  # what is far behind is not checked
    assert [by[n].correctness for n in (4, 5, 6)] == ["FAIL"] * 3
    assert "exited with 9" in by[4].reason and "does not like it" in by[5].reason
    assert "wrong result" in by[6].reason
    assert by[7].correctness == "REJECTED" and "told so" in by[7].reason
    assert by[8].correctness == "REJECTED" and "cannot be 8" in by[8].reason
    assert list(swept.spent) == ["compiled", "first blocks", "raced"]
