"""Trials and the initial configuration take turns in one process, here in Python on the CPU."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.compile.compiler_cache import adopt
from harness.loop import trial_turns
from harness.loop.quick_timing import BestQuickTimes
from harness.loop.screen_methods import TurnScreening
from harness.loop.screening import Screening
from tests.support.searches.trial_turn_case import measure, open_screening


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screening]:
    with open_screening(tmp_path_factory.mktemp("turns"), 120.0) as made:
        yield made


@pytest.mark.slow
def test_trials_take_turns_with_the_initial_configuration_and_a_failure_affects_no_other(
        screen: Screening) -> None:
    first = measure(screen, "start")
    assert first.correctness == "PASS" and not first.reason
    assert first.log_ratio is not None
    slow = measure(screen, "slow")
    assert "not timed further" in slow.reason and (slow.log_ratio or 0.0) < -0.7
    fast = measure(screen, "fast")
    assert fast.correctness == "PASS" and not fast.reason
    assert (fast.log_ratio or 0.0) > 0.3
    for mode, why in (("dies", "exited with 9"), ("raises", "does not like it")):
        failed = measure(screen, mode)
        assert failed.correctness == "FAIL" and why in failed.reason, failed
    wrong = measure(screen, "wrong")
    assert (wrong.correctness, wrong.reason) == ("FAIL", "wrong result on class large")
    faster = measure(screen, "faster")
    assert faster.correctness == "PASS" and not faster.reason
    assert (faster.log_ratio or 0.0) > (fast.log_ratio or 0.0)


def test_inputs_damaged_by_one_trial_do_not_fail_the_next(screen: Screening) -> None:
    """Trials share inputs, which are not checked after a trial that cannot be the best."""
    screen.summary.best = BestQuickTimes(screen.target)
    assert measure(screen, "fast").correctness == "PASS"
    screen.summary.best.take(9.0, {"small": 1e9, "large": 1e9})
    assert measure(screen, "spoils").reason == "slower than the best: checked on class small alone"
    screen.summary.best = BestQuickTimes(screen.target)
    assert measure(screen, "faster").correctness == "PASS"


def test_process_is_replaced_after_its_hold_time(screen: Screening,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure(screen, "fast").correctness == "PASS"
    assert isinstance(screen.method, TurnScreening)
    before = screen.method._process
    monkeypatch.setattr(trial_turns, "HOLD_S", 0.0)
    assert measure(screen, "start").correctness == "PASS"
    assert before is not None and screen.method._process is not before


@pytest.mark.slow
def test_hanging_trial_costs_its_limit_and_the_next_works(tmp_path: Path) -> None:
    with open_screening(tmp_path, 15.0) as screen:
        assert measure(screen, "start").correctness == "PASS"
        hung = measure(screen, "hangs")
        assert hung.correctness == "FAIL" and "ran past its limit of 15 s" in hung.reason
        assert measure(screen, "fast").correctness == "PASS"


def test_trial_that_cannot_be_best_is_checked_only_on_the_cheapest_class(screen: Screening) -> None:
    screen.summary.best = BestQuickTimes(screen.target)
    screen.summary.best.take(9.0, {"small": 1e9, "large": 1e9})
    little = measure(screen, "little")
    assert little.correctness == "PASS"
    assert little.reason == "slower than the best: checked on class small alone"
    assert little.latency_us is not None and little.log_ratio is not None


def test_file_in_use_stays_whole_while_it_is_replaced(tmp_path: Path) -> None:
    """Each trial's cache replaces the launcher, which the process of the trials has loaded."""
    key = "A" * 52
    cache, into = tmp_path / "cache" / key, tmp_path / "into"
    cache.mkdir(parents=True)
    (cache / "launcher.so").write_bytes(b"x" * 8192)
    assert adopt(cache.parent, into) == 1
    with (into / key / "launcher.so").open("rb") as file, \
            mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as loaded:
        seen: list[int] = []
        ended = threading.Event()

        def read_sizes() -> None:
            while not ended.is_set():
                seen.append((into / key / "launcher.so").stat().st_size)

        looking = threading.Thread(target=read_sizes)
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
