"""Measure verdicts per hour on one, two and more cards, and with a card that another process uses.

    python bench/cards.py [--rounds 4] [--verdicts 5] [--taken 75] [--out FILE]

Each verdict is a complete one in separate processes: the tuned bf16 matmul of examples/ against
itself with another comment. If it is called faster, no ratio is reported. (By chance a class is
called slower in one of 20 such verdicts: that may lose a gain, but keeps nothing wrong.) One card
and several cards alternate several times, since the speed of a host varies; each card takes its
turn as the single one, if there are enough rounds. The first verdict on each card fills caches and
is not counted. In the last step another process computes on the last card for a while: verdicts
measured there must be measured again elsewhere, and none may be lost.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import machine

from engine.verify import gate, harness_client
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import FleetDevice
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import Cancelled
from harness.requests import EvaluateRequest
from harness.search.space import knobs
from harness.settings import Settings, Trees
from harness.tasks import task_file
from harness.timing.plan import Plan
from harness.verdict import Value

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "matmul_triton"
GOOD: dict[str, Value] = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8,
                          "NUM_WARPS": 8, "NUM_STAGES": 3}
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


class FalseGain(Exception):
    """Raised if a class of identical code is judged neither a tie nor slower."""


class Bench:
    def __init__(self, out: Path, folder: Path, cards: Sequence[Device]) -> None:
        self.folder = folder
        self.keep = machine.JsonLines(out, printed=300).keep
        self.task = machine.only(task_file.load(EXAMPLE / "task.yaml"), *CLASSES)
        self.source = knobs.apply(knobs.read(EXAMPLE / "kernel.py"), GOOD, language="triton")
        self.warm = {card.id: harness_client.warm_start(self.task, card, None, {})
                     for card in cards}
        self._numbers = iter(range(1, 1_000_000))
        self._lock = threading.Lock()

    def close(self) -> None:
        for warm in self.warm.values():
            warm.close()

    def request(self, card: FleetDevice) -> EvaluateRequest:
        """Write a new source to the card's folder; return a request to judge it against itself."""
        with self._lock:
            number = next(self._numbers)
        place = self.folder / card.device.uuid
        trees = {side: place / side for side in ("candidate", "incumbent")}
        for side, tree in trees.items():
            tree.mkdir(parents=True, exist_ok=True)
            (tree / "kernel.py").write_text(f"{self.source}# {number * (side == 'candidate')}\n")
        return EvaluateRequest(
            target=self.task, device=card.device.id,
            trees=Trees(candidate=str(trees["candidate"]), incumbent=str(trees["incumbent"]),
                        reference=str(EXAMPLE)),
            settings=Settings(scratch=str(place / "scratch"), plan=Plan()))

    def verdict(self, step: str, fleet: Fleet, ended: threading.Event) -> str:
        """Make one verdict on any idle card; return the card's id. Raises FalseGain."""
        tried: list[str] = []
        stages: list[tuple[float, str]] = []

        def work(card: FleetDevice) -> Any:
            tried.append(card.device.id)
            stages.clear()
            at = time.monotonic()
            return harness_client.evaluate(
                self.request(card), cancel=ended, warm=card.warm, shelf=card.shelf,
                progress=lambda line: stages.append((
                    round(time.monotonic() - at, 1), f"{line.stage} {line.detail}"[:24])))

        verdict = fleet.run("verdict", work, cancel=ended, needs_recheck=gate.needs_recheck,
                            void_reason=gate.void_reason)
        if not ended.is_set():
            self.keep("verdict", step=step, card=tried[-1], tried=tried,
                      seconds=verdict.wall_s, speedup=verdict.speedup,
                      low=verdict.speedup_low, high=verdict.speedup_high,
                      reason=verdict.rejected_reason,
                      evidence=[one.detail for one in verdict.evidence
                                if one.kind in ("card", "stranger")],
                      rows=[(row.config_class, row.outcome, row.log_ratio, row.stderr, row.pairs)
                            for row in verdict.rows], stages=stages)
            if not {row.outcome for row in verdict.rows} <= {"tie", "slower"}:
                raise FalseGain(verdict.rejected_reason or "identical code is called faster")
        return tried[-1]

    def step(self, name: str, cards: Sequence[Device], *, verdicts: int = 0, seconds: float = 0.0,
             beside: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Make verdicts on cards in parallel, in one thread per card, for at least `seconds`.

        Each thread makes at least `verdicts`. A thread that has made them continues until all have,
        so that none runs alone; its later and interrupted verdicts do not count.
        """
        fleet = Fleet([(card, self.warm[card.id]) for card in cards], retry_s=RETRY_S,
                      limit_s=600.0, news=lambda one: self.keep(
                          "news", step=name, device=one.device, text=one.text))
        ended = threading.Event()
        began = time.monotonic()
        done: dict[int, list[tuple[str, float]]] = {number: [] for number in range(len(cards))}
        lost: list[str] = []

        def enough(number: int) -> bool:
            return len(done[number]) >= verdicts and bool(done[number]) \
                and done[number][-1][1] >= seconds

        def work(number: int) -> None:
            try:
                while not ended.is_set():
                    used = self.verdict(name, fleet, ended)
                    if not ended.is_set() and not enough(number):
                        done[number].append((used, time.monotonic() - began))
                    if all(enough(one) for one in done):
                        ended.set()
            except Cancelled:
                pass
            except Exception as error:
                lost.append(f"{type(error).__name__}: {error}")
            finally:
                ended.set()

        threads = [threading.Thread(target=work, args=(number,)) for number in done]
        threads.append(threading.Thread(target=beside))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for used_card in fleet.cards:
            used_card.leave()
        figures = {"cards": [card.id for card in cards], "lost": lost,
                "an_hour": sum(3600 * len(one) / one[-1][1] for one in done.values() if one),
                "by_card": {card.id: sum(used == card.id for one in done.values()
                                         for used, _ in one) for card in cards}}
        self.keep("step", step=name, **figures)
        return figures

    def ratio(self, cards: Sequence[Device], rounds: int, verdicts: int) -> None:
        """Compare single cards, in turn, with all of them in parallel."""
        one: dict[str, list[float]] = {}
        several: list[float] = []
        for number in range(rounds):
            alone = cards[number % len(cards)]
            turns = [("one", [alone]), (f"{len(cards)} cards", list(cards))]
            for name, used in turns if number % 2 == 0 else turns[::-1]:
                figures = self.step(name, used, verdicts=verdicts)
                if figures["lost"]:
                    return
                rates = one.setdefault(alone.id, []) if name == "one" else several
                rates.append(figures["an_hour"])
        self.keep("ratio", cards=len(cards), one=one, several=several,
                  times=fmean(several) / fmean(map(fmean, one.values())))

    def stranger(self, card: Device, after_s: float, seconds: float) -> None:
        """Wait for `after_s`, then compute on a card from another process for `seconds`."""
        time.sleep(after_s)
        self.keep("stranger", device=card.id, seconds=seconds)
        subprocess.run([sys.executable, "-c", STRANGER.format(seconds=seconds)], check=False,
                       env={**harness_client.environment(), **card.visible_env})
        self.keep("stranger gone", device=card.id)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4,
                        help="how often one card and several cards alternate")
    parser.add_argument("--verdicts", type=int, default=5,
                        help="the least verdicts per card in each turn")
    parser.add_argument("--taken", type=float, default=75.0, metavar="S",
                        help="seconds to make verdicts while another process uses the last card")
    parser.add_argument("--out", type=Path,
                        default=machine.RESULTS / f"cards-{time.strftime('%Y-%m-%d')}.jsonl")
    args = parser.parse_args()
    cards = inventory.same_model(inventory.find("auto"))
    with tempfile.TemporaryDirectory(prefix="kopt-bench-") as folder:
        bench = Bench(args.out, Path(folder), cards)
        try:
            bench.keep("machine", **machine.describe(), versions=machine.gpu_versions(),
                       cards=[f"{card.id} {card.uuid}" for card in cards])
            bench.step("first", cards, verdicts=1)
            for count in (n for n in (2, 4, 8) if n <= len(cards)):
                bench.ratio(cards[:count], args.rounds, args.verdicts)
            if len(cards) > 1 and args.taken:
                bench.step("taken", cards, seconds=args.taken, beside=lambda: bench.stranger(
                    cards[-1], args.taken / 4, args.taken / 4))
        finally:
            bench.close()


if __name__ == "__main__":
    main()
