"""The clock check suspects forged times and rejects a candidate once they are certain."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from harness.isolation.process_tree import CpuTime
from harness.timing.block_times import TimedBlock, calm_rounds
from harness.timing.clock_check import WIDEST_BAND, ClockCheck
from harness.timing.plan import GPU_LOOKS
from harness.timing.stats import LOOKS

SHORT, LONG_CALLS = 100, 300
CALL_NS = 20_000


def blocks(rng: random.Random, *, forged: float = 0.0, hidden_ns: int = 0,
           jitter_ns: int = 30_000, cost_ns: int = 400_000) -> list[TimedBlock]:
    """Return six blocks whose runner underreports by a share or by a fixed amount."""
    timed = []
    for calls in (SHORT, LONG_CALLS, LONG_CALLS, SHORT, SHORT, LONG_CALLS):
        call_ns_total = calls * CALL_NS
        seen = call_ns_total + cost_ns + round(abs(rng.gauss(0, jitter_ns)))
        timed.append(TimedBlock(calls, round(call_ns_total * (1 - forged)) - hidden_ns, seen))
    return timed


def checked_clock(seed: int, pairs: int, *, jitter_ns: int = 30_000, **forged: float) -> ClockCheck:
    rng = random.Random(seed)
    clock = ClockCheck(200_000)
    for _ in range(pairs):
        clock.add(blocks(rng, jitter_ns=jitter_ns, **forged),  # type: ignore[arg-type]
                  blocks(rng, jitter_ns=jitter_ns))
    return clock


@pytest.mark.parametrize("jitter_ns", [0, 5_000, 50_000, 500_000, 3_000_000])
def test_honest_clock_is_rarely_suspected(jitter_ns: int) -> None:
    excesses = [checked_clock(seed, 6, jitter_ns=jitter_ns).excess() for seed in range(300)]
    assert not [excess for excess in excesses if excess is not None and excess.certain]
    assert sum(excess is not None for excess in excesses) <= 15


def test_times_stamped_by_the_operating_system_exclude_wake_ups() -> None:
    def band(stamped: bool) -> float:
        rng, clock = random.Random(1), ClockCheck(200_000)
        for _ in range(4):
            sides = [[replace(block, stamped_ns=block.ns + 200_000 if stamped else 0)
                      for block in blocks(rng, jitter_ns=500_000)] for _ in range(2)]
            clock.add(*sides)
        return clock.band("") or 0.0

    assert band(stamped=True) == 0 < 0.02 < band(stamped=False)


@pytest.mark.parametrize("pairs", [4, 6])
def test_long_blocks_that_take_longer_are_not_suspected(pairs: int) -> None:
    excesses = [checked_clock(seed, pairs, jitter_ns=200_000).excess() for seed in range(300)]
    assert not [excess for excess in excesses
                if excess is not None and "longer blocks" in excess.message]


@pytest.mark.parametrize("forged", [{"forged": 0.05}, {"forged": 0.3}, {"hidden_ns": 400_000},
                                    {"hidden_ns": 1_500_000}])
def test_forged_time_is_certain_after_nine_pairs(forged: dict[str, float]) -> None:
    for seed in range(20):
        excess = checked_clock(seed, 9, **forged).excess()
        assert excess is not None and excess.certain


@pytest.mark.parametrize("forged", [0.003, 0.02, 0.05, 0.1])
def test_undetected_forgery_is_smaller_than_1_3_times_the_band(forged: float) -> None:
    for seed in range(20):
        clock = checked_clock(seed, 8, forged=forged)
        band = clock.band("")
        assert band is not None
        excess = clock.excess()
        assert (excess is not None and excess.certain) or forged < 1.3 * band


def test_clocks_of_an_honest_candidate_agree_within_two_percent_after_four_pairs() -> None:
    for seed in range(50):
        band = checked_clock(seed, 4).band("")
        assert band is not None and band <= WIDEST_BAND


def test_time_forged_by_half_is_certain_after_four_pairs() -> None:
    for seed in range(20):
        excess = checked_clock(seed, 4, forged=0.5).excess()
        assert excess is not None and excess.certain


def test_delays_in_one_pair_do_not_hide_the_others() -> None:
    """A candidate could add such delays on purpose."""
    rng = random.Random(1)
    clock = ClockCheck(200_000)
    for pair in range(9):
        delayed = [replace(block, elapsed_ns=block.elapsed_ns + (pair == 0) * 800_000_000)
                   for block in blocks(rng, forged=0.1)]
        clock.add(delayed, blocks(rng))
    excess = clock.excess()
    assert excess is not None and excess.certain


def test_band_includes_the_extra_time_in_which_a_candidate_copies_values() -> None:
    rng = random.Random(2)
    clock = ClockCheck(200_000)
    for _ in range(6):
        clock.add([replace(block, store_ns=900_000) for block in blocks(rng)],
                  [replace(block, store_ns=500_000) for block in blocks(rng)])
    assert clock.excess() is None
    band = clock.band("")
    assert band is not None and band > 400_000 / (LONG_CALLS * CALL_NS)


def with_all_calls_in_each_block(block: TimedBlock) -> TimedBlock:
    """Return a block of a cheat, which computes LONG_CALLS calls in short blocks too."""
    more_ns = LONG_CALLS * CALL_NS - block.ns
    return replace(block, ns=block.ns + more_ns, elapsed_ns=block.elapsed_ns + more_ns)


@pytest.mark.parametrize("cheats", [False, True])
@pytest.mark.parametrize("jitter_ns", [30_000, 20_000_000])
def test_blocks_with_more_calls_that_take_no_longer_are_a_certain_cheat(
        cheats: bool, jitter_ns: int) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        clock = ClockCheck(200_000)
        for _ in range(9):
            timed = blocks(rng, jitter_ns=jitter_ns)
            clock.add([with_all_calls_in_each_block(block) for block in timed] if cheats else timed,
                      blocks(rng, jitter_ns=jitter_ns))
        excess = clock.excess()
        certain = excess is not None and excess.certain
        assert certain == cheats if jitter_ns < CALL_NS * SHORT else not certain or cheats


def test_two_pairs_give_neither_finding_nor_band() -> None:
    clock = checked_clock(1, 2, forged=0.5)
    assert clock.excess() is None and clock.band("") is None


@pytest.mark.parametrize("pairs", [looks[0] for looks in (LOOKS, GPU_LOOKS)])
def test_first_look_suspects_a_small_forgery_and_finds_its_band_too_wide(pairs: int) -> None:
    """A verdict may stop at its first look, so the clock must be checked there."""
    clock = checked_clock(1, pairs, forged=0.05)
    excess = clock.excess()
    assert excess is not None and not excess.certain and (clock.band("") or 0) > WIDEST_BAND
    assert checked_clock(1, pairs, forged=0.0).excess() is None


@pytest.mark.parametrize("delay_ns", [300_000, 3_000_000, 20_000_000])
def test_processes_that_always_answer_late_are_not_rejected(delay_ns: int) -> None:
    """On a busy core all blocks of a process answer late, so they are no independent samples."""
    for seed in range(60):
        rng = random.Random(seed)
        clock, rejections = ClockCheck(30_000), 0
        for pair in range(1, 19):
            clock.add(*(blocks(rng, cost_ns=100_000 + rng.randrange(2) * delay_ns)
                        for _ in range(2)))
            excess = clock.excess() if pair in LOOKS else None
            rejections += excess is not None and excess.certain
        assert rejections == 0


def test_forgery_in_one_of_several_classes_widens_the_band_of_that_class() -> None:
    rng = random.Random(3)
    clock = ClockCheck(200_000)
    for _ in range(4):
        for name in "abcde":
            clock.add(blocks(rng, forged=0.5 * (name == "c")), blocks(rng), name)
    bands = {name: clock.band(name) or 0.0 for name in "abcde"}
    assert bands.pop("c") > 0.9 and max(bands.values()) < WIDEST_BAND


def test_copying_that_takes_long_in_every_pair_is_certain() -> None:
    rng = random.Random(4)
    clock = ClockCheck(200_000)
    for _ in range(9):
        clock.add([replace(block, store_ns=2_500_000) for block in blocks(rng)],
                  [replace(block, store_ns=500_000) for block in blocks(rng)])
    excess = clock.excess()
    assert excess is not None and excess.certain and "long after" in excess.message


def on_busy_cpu(rng: random.Random, *, forged: float = 0.0, sleeps: int = 1) -> list[TimedBlock]:
    """Return blocks of a busy machine: half of them wait for a core, and all answer late."""
    timed = []
    for calls in (SHORT, LONG_CALLS, LONG_CALLS, SHORT, SHORT, LONG_CALLS):
        busy_ns, waited_ns = calls * CALL_NS // 4, rng.choice([0, rng.randrange(20_000_000)])
        timed.append(TimedBlock(
            calls, round(busy_ns * (1 - forged)) + waited_ns,
            busy_ns + waited_ns + rng.randrange(9_000_000),
            cpu=CpuTime(busy_ns + 40_000 + rng.randrange(10_000), sleeps)))
    return timed


def busy_clock(seed: int, pairs: int, **candidate: float) -> ClockCheck:
    rng = random.Random(seed)
    clock = ClockCheck(30_000)
    for _ in range(pairs):
        clock.add(on_busy_cpu(rng, **candidate), on_busy_cpu(rng))  # type: ignore[arg-type]
    return clock


@pytest.mark.parametrize("forged", [0.1, 0.3])
def test_forgery_on_a_busy_machine_is_certain_by_cpu_time(forged: float) -> None:
    excesses = [busy_clock(seed, 9, forged=forged).excess() for seed in range(50)]
    assert sum(excess is not None and excess.certain for excess in excesses) >= 40


def test_cpu_time_bounds_a_forged_share_on_a_busy_machine() -> None:
    clocks = [busy_clock(seed, 6) for seed in range(50)]
    assert not any(clock.excess() for clock in clocks)
    assert sum((clock.band("") or 0) <= WIDEST_BAND for clock in clocks) >= 40


def test_short_waits_of_a_slow_incumbent_are_not_a_forgery_of_a_fast_candidate() -> None:
    """The incumbent takes 20 times as long: 0.5 % of its block is 10 % of the candidate's."""
    for seed in range(50):
        rng = random.Random(seed)
        clock = ClockCheck(30_000)
        for _ in range(13):
            sides = []
            for call_ns, waits in ((CALL_NS // 4, 0.0), (5 * CALL_NS, 0.009)):
                sides.append([TimedBlock(
                    calls, busy + (waited := round(
                        busy * waits * rng.choice([0, 1, 1]) * rng.random())),
                    busy + waited + 90_000, cpu=CpuTime(busy + 40_000 + rng.randrange(5_000), 1))
                    for calls in (SHORT, LONG_CALLS, LONG_CALLS, SHORT, SHORT, LONG_CALLS)
                    for busy in [calls * call_ns]])
            clock.add(*sides)
        excess = clock.excess()
        assert excess is None or not excess.certain


def test_blocks_that_all_waited_for_a_core_give_no_certain_finding() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        clock = ClockCheck(30_000)
        for _ in range(9):
            clock.add(*([TimedBlock(block.calls, block.ns * times, block.elapsed_ns * times + 9_000,
                                    cpu=block.cpu)
                         for block in on_busy_cpu(rng)] for times in (3, 9)))
        excess = clock.excess()
        assert excess is None or not excess.certain


def test_main_thread_that_sleeps_in_the_calls_is_checked_by_the_harness_clock() -> None:
    """Another thread may do the work meanwhile, also if the incumbent's main thread sleeps."""
    band = busy_clock(1, 6, sleeps=4).band("")
    assert band is not None and band > 0.1
    rng, clock = random.Random(1), ClockCheck(30_000)
    for _ in range(6):
        clock.add(on_busy_cpu(rng, sleeps=3), on_busy_cpu(rng, sleeps=4))
    assert (clock.band("") or 0.0) > 0.1


def test_rounds_that_waited_for_a_core_do_not_count() -> None:
    def block(calls: int, idle: float) -> TimedBlock:
        return TimedBlock(calls, 1_000_000, 2_000_000,
                          cpu=CpuTime(round(1_000_000 * (1 - idle)) + 1, 1))

    calm, late = (block(10, 0.0), block(10, 0.0)), (block(10, 0.0), block(10, 0.8))
    long = block(30, 0.4), block(30, 0.4)
    assert calm_rounds([calm, late, calm, long]) == [0, 2, 3]
    assert calm_rounds([(TimedBlock(10, 5, 9),) * 2] * 3) == [0, 1, 2]
