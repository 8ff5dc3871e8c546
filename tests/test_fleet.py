"""Who gets which card, in which order, and what becomes of work that loses its cards."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from functools import partial

import pytest

from engine.fleet import Card, Fleet, Gated, NoIdleGpu, TakesCards, Use
from engine.harness_process import HarnessFault
from harness.device import Device
from harness.errors import Stopped
from harness.requests import ErrorLine
from harness.tenants import Neighbours
from harness.zygote import WarmStart
from tests.processes import until


def cards(count: int) -> list[tuple[Device, WarmStart]]:
    return [(Device(id=f"cuda:{index}", kind="nvidia", name="NVIDIA H200", index=index,
                    uuid=f"GPU-fleet-{index}", arch="sm_90"), WarmStart(None))
            for index in range(count)]


def lost(card: Card) -> str:
    raise HarnessFault(ErrorLine(what=f"{card.device.id} is not there", of_device=True))


def test_a_look_that_began_before_a_card_was_lost_does_not_put_it_back() -> None:
    """A loop's look at the card goes on while a verdict loses it."""
    looking, go_on, stop = threading.Event(), threading.Event(), threading.Event()
    news: list[Gated] = []

    def look(device: Device, *, just_left: bool, near: Neighbours | None) -> str:
        if threading.current_thread().name == "loop":
            looking.set()
            assert go_on.wait(30)
        return ""

    fleet = Fleet(cards(1), retry_s=600.0, limit_s=3600.0, look=look, news=news.append,
                  tick_s=0.01)

    def ends(use: Use, work: Callable[[Card], str]) -> None:
        with contextlib.suppress(Stopped):
            fleet.run(use, work, cancel=stop)

    loop = threading.Thread(name="loop", target=ends, args=("loop", lost))

    def verdict(card: Card) -> str:
        loop.start()
        assert looking.wait(30)
        return lost(card)

    judged = threading.Thread(target=ends, args=("verdict", verdict))
    judged.start()
    until(lambda: fleet.cards[0].closed)
    go_on.set()
    until(lambda: not fleet.cards[0].users["loop"])
    assert fleet.cards[0].closed == "cuda:0 is not there"
    assert [one.text.partition(";")[0] for one in news] == ["not used: cuda:0 is not there"]
    stop.set()
    loop.join()
    judged.join()


def test_who_waits_longest_for_a_card_is_next() -> None:
    """As many threads as cards take verdicts in order; one card is closed."""
    fleet = Fleet(cards(2), retry_s=600.0, limit_s=3600.0, tick_s=0.01, look=lambda one, **_: (
        "50 % in use" if one.id == "cuda:0" else ""))
    jobs: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(8):
        jobs.put(number)
    began: list[int] = []
    turn = threading.Semaphore(0)

    def judge(number: int, _: Card) -> bool:
        began.append(number)
        return turn.acquire(timeout=30)

    def work() -> None:
        while True:
            try:
                number = jobs.get_nowait()
            except queue.Empty:
                return
            fleet.run("verdict", partial(judge, number))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for count in range(1, 9):
        until(lambda: len(began) == count)  # noqa: B023
        until(lambda: bool(fleet._waiting) or count == 8)  # noqa: B023
        turn.release()
    for thread in threads:
        thread.join()
    assert all(abs(number - place) <= 1 for place, number in enumerate(began)), began


@pytest.mark.parametrize(("count", "kind"), [(1, NoIdleGpu), (3, TakesCards)])
def test_work_that_loses_several_fit_cards_may_be_why(count: int, kind: type[NoIdleGpu]) -> None:
    now = [0.0]

    def wait(_: str) -> None:
        now[0] += 100.0

    fleet = Fleet(cards(count), retry_s=600.0, limit_s=3600.0, tick_s=0.0,
                  look=lambda *_, **__: "", clock=lambda: now[0])
    with pytest.raises(NoIdleGpu, match="5 times the card was lost") as raised:
        fleet.run("verdict", lost, on_wait=wait)
    assert type(raised.value) is kind
    assert not fleet._waiting
