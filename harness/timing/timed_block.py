"""Asks a runner to time a block of calls, and checks the seal of what it reports.

The compiled loop of the runner (harness/child/run/timed_loop.c) says when it is ready, waits for
eight random bytes, makes the calls and reports their time, sealed by the key of its process.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns

from harness.errors import KoptError
from harness.isolation.process_tree import busiest
from harness.isolation.rpc import INVALID_ANSWER, Peer, PeerError
from harness.timing.block_times import TimedBlock

WORD = (1 << 64) - 1
HOST_SHARE = 0.5
"""The share of a call that the host may need to launch it and still stay ahead of the GPU."""


@dataclass(frozen=True, kw_only=True)
class WarmupAnswer:
    """A runner's own times of a call of one class: the whole call, and until all is launched."""

    call_ns: float
    launch_ns: float = 0.0

    def __post_init__(self) -> None:
        _check_time(self.call_ns)
        _check_time(self.launch_ns)

    def is_long(self, least_ns: float) -> bool:
        """Return whether a GPU may be timed call by call: calls take long, and the host is ahead.

        A module of many kernels keeps the host busy for as long as the GPU.
        """
        return self.call_ns >= least_ns and self.launch_ns <= HOST_SHARE * self.call_ns


@dataclass(frozen=True, kw_only=True)
class CaptureAnswer:
    """A runner's answer about a graph of calls: whether there is one, and its time per call.

    The time is 0 if it was not requested.
    """

    graph: bool = False
    graph_ns: float = 0.0
    why: str = ""

    def __post_init__(self) -> None:
        _check_time(self.graph_ns)


def _check_time(ns: float) -> None:
    if not 0 <= ns < 1e15:
        raise ValueError("not a possible time of a call")


class TamperedTiming(KoptError):
    """A runner reported a time that it cannot have measured."""

    exit_code = 1


def timed_block(peer: Peer, case: str, order: Sequence[int], mode: str, *, unit: int = 0,
                fill: Callable[[], object] = lambda: None, fetch: bool = False,
                store: bool = False, flip: Callable[[], object] = lambda: None,
                stop: bool = False, cpu: bool = False, name: str = "it") -> TimedBlock:
    """Return the time of one call on each slot in `order`, by the runner and by our own clock.

    `fill` writes the contents when the runner is ready. With `stop` the runner's processes are
    stopped for that, and again as soon as it has reported. With `fetch` it copies contents to its
    GPU before the calls, with `store` returned values to the slots after them; `flip` spoils inputs
    before that copy and restores them after it. `unit` is the number of calls in its graph, if the
    mode is `graph`. With `cpu` and `stop` the CPU time of its main thread is read as well. Raises
    PeerError, PeerDied and TamperedTiming.
    """
    peer.send("block", case=case, order=list(order), mode=mode, unit=unit or len(order),
              fetch=fetch, store=store, stop=stop)
    peer.receive()
    if stop:
        peer.pause()
    fill()
    if fetch:
        _start(peer, resume=stop)
        peer.receive()
        if stop:
            peer.pause()
    before = peer.cpu_times() if stop and cpu else {}
    if stamps := peer.stamps:
        stamps.take_ns()
    word = _start(peer, resume=stop)
    answer = peer.receive()
    asked_ns, elapsed_ns, store_ns = peer.asked_ns, peer.elapsed_ns, 0
    ns = answer.get("ns")
    if not isinstance(ns, int) or isinstance(ns, bool) or not 0 <= ns < 1 << 62:
        raise PeerError(INVALID_ANSWER)
    if peer.key and answer.get("seal") != sealed(peer.key, word, ns):
        raise TamperedTiming(f"{name} reports a time that its loop did not measure")
    if not 0 < ns <= elapsed_ns:
        raise TamperedTiming(f"{name} reports {ns} ns for a block of {elapsed_ns} ns")
    if stop:
        peer.pause(stops_itself=True)
    spent = busiest(before, peer.cpu_times()) if before else None
    sent = stamps.take_ns() if stamps else [0, 0]
    if len(sent) < 2:
        raise TamperedTiming(f"{name} does not say when its calls began and ended")
    if store:
        flip()
        peer.asked_ns = perf_counter_ns()
        if stop:
            peer.resume()
        peer.receive()
        store_ns = peer.elapsed_ns
        if stop:
            peer.pause()
        flip()
    return TimedBlock(len(order), ns, elapsed_ns, asked_ns, store_ns, cpu=spent,
                      stamped_ns=max(sent) - min(sent))


def _start(peer: Peer, *, resume: bool) -> int:
    """Send a word for which the runner waits; our clock starts when the runner may run."""
    word = secrets.token_bytes(8)
    if resume:
        peer.post(word)
    peer.asked_ns = perf_counter_ns()
    if resume:
        peer.resume()
    else:
        peer.post(word)
    return int.from_bytes(word, "little")


def sealed(key: bytes, word: int, ns: int) -> int:
    """Return the seal of a report: SipHash-2-4 of word and time, less its two lowest bits."""
    first, second = (int.from_bytes(part, "little") for part in (key[:8], key[8:]))
    a, b = first ^ 0x736F6D6570736575, second ^ 0x646F72616E646F6D
    c, d = first ^ 0x6C7967656E657261, second ^ 0x7465646279746573
    for number, rounds in ((word, 2), (ns, 2), (16 << 56, 2), (0, 4)):
        d ^= number
        c ^= 0xFF if rounds == 4 else 0
        for _ in range(rounds):
            a = (a + b) & WORD
            b = _rotated(b, 13) ^ a
            a = _rotated(a, 32)
            c = (c + d) & WORD
            d = _rotated(d, 16) ^ c
            a = (a + d) & WORD
            d = _rotated(d, 21) ^ a
            c = (c + b) & WORD
            b = _rotated(b, 17) ^ c
            c = _rotated(c, 32)
        a ^= number
    return (a ^ b ^ c ^ d) >> 2


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & WORD
