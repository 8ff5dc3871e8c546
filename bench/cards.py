"""Verdicts an hour on one, two and more cards of this host; and a card that is taken meanwhile.

    python bench/cards.py [--seconds 150] [--out FILE]

Each verdict is a whole one, in processes of its own: the tuned bf16 matmul of examples/ against
itself but for a comment, so that what it says is known: a tie. The first verdict on each card is
not counted, since it fills caches. In the last step a process of somebody else computes on the last
card for a while: what was measured there has to be measured again elsewhere, and none may be lost.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import machine
from gpu import EXAMPLES, GOOD

from engine import harness_process
from engine.fleet import Card, Fleet, Gated
from harness import devices, knobs, target
from harness.device import Device
from harness.errors import KoptError, Stopped
from harness.evaluate import Settings, Trees
from harness.plan import Plan
from harness.requests import EvaluateRequest

EXAMPLE = "matmul_triton"
CLASSES = ("square", "skinny")
RETRY_S = 15.0
STRANGER = """\
import time, torch
a = torch.ones(8192, 8192, device="cuda")
end = time.monotonic() + float({seconds})
while time.monotonic() < end:
    b = a @ a
    torch.cuda.synchronize()
"""


class Bench:
    def __init__(self, out: Path, folder: Path) -> None:
        self.out, self.folder = out, folder
        task = target.load(EXAMPLES / EXAMPLE / "task.yaml")
        self.task = replace(task, classes=tuple(task.config_class(name) for name in CLASSES))
        self.source = knobs.apply(knobs.read(EXAMPLES / EXAMPLE / "kernel.py"), GOOD[EXAMPLE],
                                  language="triton")
        self._numbers = iter(range(1, 1_000_000))
        self._lock = threading.Lock()

    def keep(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, "at": round(time.monotonic() - BEGAN, 1), **fields})
        with self._lock, self.out.open("a") as file:
            file.write(line + "\n")
        print(line[:300], flush=True)

    def request(self, card: Card, place: str) -> EvaluateRequest:
        """Return an A/A trial of a source that nobody has seen before."""
        with self._lock:
            number = next(self._numbers)
        trees = {side: self.folder / place / side for side in ("candidate", "incumbent")}
        for side, tree in trees.items():
            tree.mkdir(parents=True, exist_ok=True)
            (tree / "kernel.py").write_text(f"{self.source}# {number * (side == 'candidate')}\n")
        return EvaluateRequest(
            target=self.task, device=card.device.id,
            trees=Trees(candidate=str(trees["candidate"]), incumbent=str(trees["incumbent"]),
                        reference=str(EXAMPLES / EXAMPLE)),
            settings=Settings(scratch=str(self.folder / place / "scratch"), plan=Plan()))

    def step(self, name: str, cards: Sequence[Device], seconds: float,
             taken: bool = False) -> dict[str, Any]:
        """Have verdicts made on some cards for so long; returns how many came, and how fast."""
        fleet = Fleet([(card, harness_process.warm_start(self.task, card, None, {}))
                       for card in cards], retry_s=RETRY_S, limit_s=600.0,
                      news=lambda one: self._news(name, one))
        ended = threading.Event()
        began = 0.0

        def begin() -> None:
            nonlocal began
            began = time.monotonic()

        ready = threading.Barrier(len(cards) + 1, action=begin)
        done: list[tuple[str, float, str]] = []
        lost: list[str] = []

        def one(place: str) -> str:
            card_of: list[str] = []
            stages: list[tuple[float, str]] = []

            def work(card: Card) -> Any:
                card_of.append(card.device.id)
                stages.clear()
                at = time.monotonic()
                return harness_process.evaluate(
                    self.request(card, place), cancel=ended, warm=card.warm,
                    progress=lambda line: stages.append((
                        round(time.monotonic() - at, 1), f"{line.stage} {line.detail}"[:24])))

            verdict = fleet.run("verdict", work, cancel=ended,
                                doubtful=lambda v: not (v.valid and v.correct))
            if not ended.is_set():
                self.keep("verdict", step=name, card=card_of[-1], tried=card_of,
                          seconds=verdict.wall_s, speedup=verdict.speedup,
                          low=verdict.speedup_low, high=verdict.speedup_high,
                          reason=verdict.rejected_reason,
                          evidence=[e.detail for e in verdict.evidence if e.kind == "card"],
                          outcomes=[row.outcome for row in verdict.rows], stages=stages)
            return card_of[-1]

        def many(place: str) -> None:
            try:
                one(place)
                ready.wait()
                while not ended.is_set():
                    used = one(place)
                    if not ended.is_set():
                        done.append((place, time.monotonic() - began, used))
            except Stopped:
                pass
            except (KoptError, OSError) as error:
                lost.append(str(error))
                ready.abort()

        threads = [threading.Thread(target=many, args=(f"{name}-{i}",)) for i in range(len(cards))]
        for thread in threads:
            thread.start()
        ready.wait()
        stranger = self._stranger(cards[-1], seconds / 3, seconds / 4) if taken else None
        time.sleep(seconds)
        ended.set()
        for thread in threads:
            thread.join()
        fleet.close()
        if stranger is not None:
            stranger.join()
        told = {"cards": len(cards), "verdicts": len(done), "seconds": seconds, "lost": lost,
                "an_hour": an_hour([(place, at) for place, at, _ in done]),
                "by_card": {card.id: sum(used == card.id for *_, used in done) for card in cards}}
        self.keep("step", step=name, **told)
        return told

    def _news(self, step: str, news: Gated) -> None:
        self.keep("news", step=step, device=news.device, text=news.text)

    def _stranger(self, card: Device, after_s: float, seconds: float) -> threading.Thread:
        def come() -> None:
            time.sleep(after_s)
            self.keep("stranger", device=card.id, seconds=seconds)
            subprocess.run([sys.executable, "-c", STRANGER.format(seconds=seconds)], check=False,
                           env={**harness_process.environment(), **card.visible_env})
            self.keep("stranger gone", device=card.id)

        thread = threading.Thread(target=come)
        thread.start()
        return thread


def an_hour(ended: Sequence[tuple[str, float]]) -> float:
    """Return how many verdicts an hour came, from where and when (s) each one ended.

    One place makes its verdicts one after another: its rate is their number over the last one's
    end, so that what was cut off by the end of a step counts on neither side.
    """
    places = {place for place, _ in ended}
    return sum(3600 * sum(place == one for one, _ in ended)
               / max(at for one, at in ended if one == place) for place in places)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=150.0, help="for each step")
    parser.add_argument("--out", type=Path,
                        default=machine.RESULTS / f"cards-{time.strftime('%Y-%m-%d')}.jsonl")
    given = parser.parse_args()
    cards = devices.alike(devices.find("auto"))
    with tempfile.TemporaryDirectory(prefix="kopt-bench-") as folder:
        bench = Bench(given.out, Path(folder))
        bench.keep("machine", **machine.describe(), versions=machine.gpu_versions(),
                   cards=[f"{card.id} {card.uuid}" for card in cards])
        one = bench.step("one", cards[:1], given.seconds)
        for count in (n for n in (2, 4, 8) if n <= len(cards)):
            several = bench.step(f"{count} cards", cards[:count], given.seconds)
            bench.keep("ratio", cards=count, times=several["an_hour"] / one["an_hour"])
        if len(cards) > 1:
            bench.step("taken", cards, given.seconds, taken=True)


BEGAN = time.monotonic()
if __name__ == "__main__":
    main()
