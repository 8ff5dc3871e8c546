"""Show where the seconds of a verdict go: each request to a process, its time and duration.

    python bench/timeline.py [--class softmax-1024x2048] [--repeat 2]

The zygote is kept between verdicts, as in a campaign.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import machine
from fidelity_kernels import source, task, write

from harness.compile import kernel
from harness.evaluate.evaluate import evaluate
from harness.isolation.rpc import Peer
from harness.isolation.zygote_client import Zygote
from harness.settings import Settings, Trees
from harness.timing.paired_blocks import PairedBlocks
from harness.timing.paired_timing import ClassTiming, PairedTiming
from harness.timing.plan import Plan

BEGAN = time.monotonic()


class RequestLog:
    """Replaces `Peer.send` and `Peer.receive`, and prints each request and its duration."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._asked: dict[int, list[tuple[str, float]]] = {}
        self._last: dict[int, tuple[str, float]] = {}
        self._names: dict[int, str] = {}
        self._send, self._receive = Peer.send, Peer.receive

    def listen(self) -> None:
        log = self

        def send(peer: Peer, op: str, descriptors: Sequence[int] = (), /,
                 **fields: object) -> None:
            log._asked.setdefault(id(peer), []).append((op, time.monotonic()))
            log._send(peer, op, descriptors, **fields)

        def receive(peer: Peer) -> dict[str, Any]:
            answer = log._receive(peer)
            pending = log._asked[id(peer)]  # a block has several answers
            op, asked = pending.pop(0) if pending else log._last[id(peer)]
            now = time.monotonic()
            log._last[id(peer)] = op, now
            name = log._names.setdefault(id(peer), f"#{len(log._names)}")
            if now - asked > 0.004 or op not in ("fill_ring", "compare_ring", "block"):
                print(f"{now - log.began:7.3f}  {name:4} {op:12} {now - asked:6.3f}")
            return answer

        setattr(Peer, "send", send)  # noqa: B010
        setattr(Peer, "receive", receive)  # noqa: B010


def print_ratios() -> None:
    """Print the log-ratio of every pair, in percent, and the time of every block."""
    run = PairedTiming.run

    def timed_run(self: PairedTiming, *args: Any) -> list[ClassTiming]:
        timings = run(self, *args)
        for timing in timings:
            print(f"         {timing.config_class}: pairs %",
                  *(f"{100 * ratio:+.2f}" for ratio in timing.log_ratios))
        return timings

    setattr(PairedTiming, "run", timed_run)  # noqa: B010
    duel = PairedBlocks.run

    def blocks(self: PairedBlocks) -> tuple[float, float | None]:
        print(f"{time.monotonic() - BEGAN:7.3f}  duel begins")
        result = duel(self)
        for side in sorted(self.blocks):
            print(f"         {self.case.config_class} {side}: us a call", *(
                f"{block.ns / block.calls / 1e3:.2f}" for block in self.blocks[side]))
        return result

    setattr(PairedBlocks, "run", blocks)  # noqa: B010


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--class", dest="name", default="softmax-1024x2048",
                        help="or all")
    parser.add_argument("--repeat", type=int, default=2)
    args = parser.parse_args()
    device = machine.card()
    target = machine.only(task(), args.name) if args.name != "all" else task()
    place = kernel.place_on(device, target.language, scratch="", python=None, env={})
    kind = kernel.kind_of(place, target.language)
    assert kind is not None
    zygote = Zygote.start(kind)
    log = RequestLog()
    log.listen()
    print_ratios()
    for _ in range(args.repeat):
        with tempfile.TemporaryDirectory(prefix="kopt-bench-") as name:
            folder = Path(name)
            write(folder / "candidate", source({}))
            write(folder / "incumbent", source({}) + "# the same\n")
            log.began = time.monotonic()
            print(f"--- {args.name}")
            verdict = evaluate(
                target, Trees(candidate=f"{folder}/candidate", reference=f"{folder}/candidate",
                              incumbent=f"{folder}/incumbent"),
                device, Settings(scratch=f"{folder}/scratch", plan=Plan(alpha=0.001)),
                progress=lambda stage, detail, _: print(
                    f"{time.monotonic() - log.began:7.3f}  {stage} {detail}"), zygote=zygote)
            print(f"{time.monotonic() - log.began:7.3f}  verdict", verdict.rejected_reason or [
                (row.outcome, row.pairs, row.latency_us) for row in verdict.rows])
            print(*(f"         {one.kind}: {one.detail}" for one in verdict.evidence), sep="\n")


if __name__ == "__main__":
    main()
