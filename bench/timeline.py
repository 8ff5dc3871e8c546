"""Show where the seconds of a verdict go: each request to a process, its time and duration.

    python bench/timeline.py [--class softmax-1024x2048] [--repeat 2]

The zygote is kept between verdicts, as in a campaign.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import machine
from fidelity_kernels import source, task, write

from harness.evaluate.evaluate import evaluate
from harness.isolation.rpc import Peer
from harness.settings import Settings, Trees
from harness.timing.paired_blocks import PairedBlocks
from harness.timing.paired_timing import ClassTiming, PairedTiming
from harness.timing.plan import Plan

BEGAN = time.monotonic()


class RequestLog:
    """Replaces `Peer.send` and `Peer.receive`: sums the seconds of requests by name; they overlap.

    With `prints` each request is printed with its duration, quick ring and block requests excepted.
    """

    def __init__(self, *, prints: bool) -> None:
        self.began = time.monotonic()
        self.seconds: dict[str, float] = defaultdict(float)
        self._prints = prints
        self._asked: dict[int, list[tuple[str, float]]] = {}
        self._last: dict[int, tuple[str, float]] = {}
        self._names: dict[int, str] = {}
        send, receive = Peer.send, Peer.receive

        def logged_send(peer: Peer, op: str, *args: Any, **fields: object) -> None:
            self._asked.setdefault(id(peer), []).append((op, time.monotonic()))
            send(peer, op, *args, **fields)

        def logged_receive(peer: Peer) -> dict[str, Any]:
            answer = receive(peer)
            pending = self._asked[id(peer)]  # a block request has several answers
            op, asked = pending.pop(0) if pending else self._last[id(peer)]
            self._last[id(peer)] = op, time.monotonic()
            self._note(id(peer), op, asked)
            return answer

        setattr(Peer, "send", logged_send)  # noqa: B010
        setattr(Peer, "receive", logged_receive)  # noqa: B010

    def _note(self, peer: int, op: str, asked: float) -> None:
        now = time.monotonic()
        self.seconds[op] += now - asked
        name = self._names.setdefault(peer, f"#{len(self._names)}")
        if self._prints and (now - asked > 0.004
                             or op not in ("fill_ring", "compare_ring", "block")):
            print(f"{now - self.began:7.3f}  {name:4} {op:12} {now - asked:6.3f}")


def print_ratios() -> None:
    """Make verdicts print the log-ratio of every pair, in percent, and the time of every block."""
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
    zygote = machine.zygote(device, target.language)
    log = RequestLog(prints=True)
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
