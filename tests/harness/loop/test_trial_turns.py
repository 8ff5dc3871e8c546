"""Trials run in one process in turns with the start; here in Python on the CPU."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.compile.cache_adoption import adopt
from harness.compile.kernel import Kernel
from harness.compile.precompile import CompileResult, Precompiler
from harness.devices import inventory
from harness.loop import trial_turns
from harness.loop.screen_methods import TurnScreening
from harness.loop.screening import Screening
from harness.search.space.tunable_source import TunableSource
from harness.search.trials.trials import Screened, SearchJob
from harness.settings import Settings
from harness.target import ConfigClass
from harness.timing.quick_timing import BestQuickTimes
from tests.support.kernel_case import target, tree

MODES = ("start", "slow", "little", "fast", "dies", "raises", "wrong", "hangs", "faster",
         "spoils")
WORK = """import os, time, torch
MODE = 0  # kopt: knob MODE in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
SECONDS = (4e-3, 4e-2, 3e-3, 3e-4, 0, 0, 1e-5, 0, 1e-5, 3.5e-4)

def double(x, out):
    if MODE == 4:
        os._exit(9)
    if MODE == 5:
        raise RuntimeError("does not like it")
    if MODE == 7:
        time.sleep(3600)
    end = time.perf_counter() + SECONDS[MODE]
    while time.perf_counter() < end:
        pass
    if MODE == 9 and x.numel() > 400:
        x.zero_()
    out.copy_(x if MODE == 6 and x.numel() > 400 else 2 * x)
"""


class NoPrecompiler(Precompiler):
    """A precompiler for Python kernels, which need none."""

    def _compile(self, key: str, source: str) -> CompileResult:
        return CompileResult()

    def give(self, key: str, kernel: Kernel) -> int:
        return 0


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screening]:
    with opened(tmp_path_factory.mktemp("turns"), 120.0) as made:
        yield made


def opened(folder: Path, wall_s: float) -> Screening:
    at = tree(folder / "tree", WORK)
    task = target(language="python", classes=(
        ConfigClass(name="small", shape={"n": 331}), ConfigClass(name="large", shape={"n": 4099})))
    made = Screening(task, SearchJob(tree=at, reference=at), inventory.find("cpu"),
                  Settings(scratch=str(folder / "scratch"), wall_s=wall_s),
                     TunableSource.parse(WORK, language="python"))
    made.ahead = NoPrecompiler(task, Path(at), "sm_90", folder / "ahead", workers=1)
    return made


def of(screen: Screening, mode: str) -> Screened:
    return screen.measure({"MODE": MODES.index(mode)})


@pytest.mark.slow
def test_trials_take_turns_with_the_start_and_failures_affect_no_other(screen: Screening) -> None:
    first = of(screen, "start")
    assert first.correctness == "PASS" and not first.reason
    assert first.log_ratio is not None
    slow = of(screen, "slow")
    assert "not timed further" in slow.reason and (slow.log_ratio or 0.0) < -0.7
    fast = of(screen, "fast")
    assert fast.correctness == "PASS" and not fast.reason
    assert (fast.log_ratio or 0.0) > 0.3
    for mode, why in (("dies", "exited with 9"), ("raises", "does not like it")):
        failed = of(screen, mode)
        assert failed.correctness == "FAIL" and why in failed.reason, failed
    wrong = of(screen, "wrong")
    assert (wrong.correctness, wrong.reason) == ("FAIL", "wrong result on class large")
    faster = of(screen, "faster")
    assert faster.correctness == "PASS" and not faster.reason
    assert (faster.log_ratio or 0.0) > (fast.log_ratio or 0.0)


def test_damaged_buffers_do_not_fail_the_next_trial(screen: Screening) -> None:
    """Inputs are shared, and a trial that cannot become the best is not checked on all classes."""
    screen.summary.best = BestQuickTimes(screen.target)
    assert of(screen, "fast").correctness == "PASS"
    screen.summary.best.take(9.0, {"small": 1e9, "large": 1e9})
    assert of(screen, "spoils").reason == "slower than the best: checked on class small alone"
    screen.summary.best = BestQuickTimes(screen.target)
    assert of(screen, "faster").correctness == "PASS"


def test_process_is_replaced_after_its_hold_time(screen: Screening,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    assert of(screen, "fast").correctness == "PASS"
    assert isinstance(screen.method, TurnScreening)
    before = screen.method.turns._process
    monkeypatch.setattr(trial_turns, "HOLD_S", 0.0)
    assert of(screen, "start").correctness == "PASS"
    assert before is not None and screen.method.turns._process is not before


@pytest.mark.slow
def test_hanging_trial_costs_its_limit_and_the_next_works(tmp_path: Path) -> None:
    with opened(tmp_path, 15.0) as screen:
        assert of(screen, "start").correctness == "PASS"
        hung = of(screen, "hangs")
        assert hung.correctness == "FAIL" and "ran past its limit of 15 s" in hung.reason
        assert of(screen, "fast").correctness == "PASS"


def test_trial_that_cannot_be_best_is_checked_only_on_the_cheapest_class(screen: Screening) -> None:
    screen.summary.best = BestQuickTimes(screen.target)
    screen.summary.best.take(9.0, {"small": 1e9, "large": 1e9})
    little = of(screen, "little")
    assert little.correctness == "PASS"
    assert little.reason == "slower than the best: checked on class small alone"
    assert little.latency_us is not None and little.log_ratio is not None


def test_file_in_use_stays_whole_while_it_is_replaced(tmp_path: Path) -> None:
    """A process that runs many configurations has loaded the launcher that each of them brings."""
    key = "A" * 52
    cache, into = tmp_path / "cache" / key, tmp_path / "into"
    cache.mkdir(parents=True)
    (cache / "launcher.so").write_bytes(b"x" * 8192)
    assert adopt(cache.parent, into) == 1
    with (into / key / "launcher.so").open("rb") as file, \
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as loaded:
        seen: list[int] = []
        ended = threading.Event()

        def look() -> None:
            while not ended.is_set():
                seen.append((into / key / "launcher.so").stat().st_size)

        looking = threading.Thread(target=look)
        looking.start()
        (cache / "launcher.so").write_bytes(b"y" * 8192)
        for _ in range(50):
            adopt(cache.parent, into)
        ended.set()
        looking.join()
        assert loaded[:] == b"x" * 8192
    assert set(seen) == {8192} and len(seen) > 1
    assert (into / key / "launcher.so").read_bytes() == b"y" * 8192
    assert [path.name for path in (into / key).iterdir()] == ["launcher.so"]
