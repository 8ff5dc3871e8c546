"""The clock check suspects or convicts forged times, and inputs change before every block."""

from __future__ import annotations

import math
import random

import pytest

from harness.case import Case
from harness.timing.clock_check import ClockCheck, TimedBlock
from harness.timing.input_mutation import InputMutation

SHORT, LONG_CALLS = 100, 300
CALL_NS = 20_000


def blocks(rng: random.Random, *, forged: float = 0.0, hidden_ns: int = 0,
           jitter_ns: int = 30_000, cost_ns: int = 400_000) -> list[TimedBlock]:
    """Return six blocks whose runner underreports by a share or by a fixed amount."""
    timed = []
    for calls in (SHORT, LONG_CALLS, LONG_CALLS, SHORT, SHORT, LONG_CALLS):
        call_ns_total = calls * CALL_NS
        seen = call_ns_total + cost_ns + round(abs(rng.gauss(0, jitter_ns)))
        timed.append(TimedBlock(calls, round(call_ns_total * (1 - forged)) - hidden_ns, seen, 0))
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


@pytest.mark.parametrize("forged", [{"forged": 0.05}, {"forged": 0.3}, {"hidden_ns": 400_000},
                                    {"hidden_ns": 1_500_000}])
def test_forged_time_is_certain_after_a_few_pairs(forged: dict[str, float]) -> None:
    for seed in range(20):
        excess = checked_clock(seed, 9, **forged).excess()
        assert excess is not None and excess.certain


@pytest.mark.parametrize("forged", [0.003, 0.02, 0.05, 0.1])
def test_undetected_forgery_lies_within_the_band(forged: float) -> None:
    for seed in range(20):
        clock = checked_clock(seed, 8, forged=forged)
        assert clock.band is not None
        excess = clock.excess()
        assert (excess is not None and excess.certain) or forged < 1.3 * clock.band


def test_two_pairs_give_no_finding() -> None:
    assert checked_clock(1, 2, forged=0.5).excess() is None


def test_blocks_of_one_length_have_no_band() -> None:
    clock = ClockCheck(200_000)
    clock.add([TimedBlock(10, 1000, 2000, 0)] * 4, [TimedBlock(10, 1000, 2000, 0)] * 4)
    assert clock.band is None and clock.excess() is None


CASE = Case(id="c", config_class="c", distribution="normal", tensors=(
    {"name": "x", "role": "input", "shape": [5, 3]}, {"name": "n", "role": "scalar", "shape": []},
    {"name": "w", "role": "input", "shape": [4], "weight": True},
    {"name": "y", "role": "input", "shape": [7]}, {"name": "one", "role": "input", "shape": [1]},
    {"name": "out", "role": "output", "shape": [5]}))


@pytest.mark.parametrize("seed", range(30))
def test_tracked_contents_equal_those_of_the_runner(seed: int) -> None:
    """The oracle's view (all moves at once, from the originals) equals the runner's memory."""
    rng = random.Random(seed)
    contents = InputMutation(CASE, rng)
    copies = 3
    memory = {copy: {0: list(range(15)), 3: list(range(7))} for copy in range(copies)}
    for _ in range(6):
        moves = contents.draw(copies)
        chain = contents.chain(16)
        contents.note(0, chain)
        for copy, all_moves in ((contents.copy, moves), (0, chain)):
            for index, to, source in all_moves:
                memory[copy][index][to] = memory[copy][index][source]
    for copy in range(copies):
        exchanged = contents.exchanged(copy)
        assert set(exchanged) <= {"x", "y"}, "weights, scalars, outputs and lone elements stay"
        for name, index in (("x", 0), ("y", 3)):
            origins = exchanged.get(name, {})
            assert memory[copy][index] == [origins.get(at, at)
                                           for at in range(len(memory[copy][index]))]


@pytest.mark.parametrize("length", [32, 256])
def test_chain_repeats_neither_contents_nor_their_sum(length: int) -> None:
    big = Case(id="c", config_class="c", distribution="normal",
               tensors=({"name": "x", "role": "input", "shape": [100_000]},))
    contents = InputMutation(big, random.Random(3))
    rng = random.Random(4)
    values = [rng.gauss(0, 1) for _ in range(100_000)]
    total, seen = math.fsum(values), set()
    for _ in range(9):
        for _, to, source in contents.chain(length):
            total += values[source] - values[to]
            values[to] = values[source]
            seen.add(round(total, 9))
    assert len(seen) == 9 * length


def test_weights_are_not_moved() -> None:
    only_weights = Case(id="c", config_class="c", distribution="normal", tensors=(
        {"name": "w", "role": "input", "shape": [9], "weight": True},))
    contents = InputMutation(only_weights, random.Random(1))
    assert contents.draw(4) == [] and contents.chain(16) == []
