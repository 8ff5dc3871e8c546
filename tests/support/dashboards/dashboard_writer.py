"""A process that writes a campaign's journal at a realistic pace.

Four slots report twice a second; every two seconds one gets a verdict and a decision.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.journal import lease
from engine.journal.records import Candidate, Round, Slot
from engine.journal.write import Writer
from tests.support.dashboards.dashboard_journal import CAMPAIGN, verdict_of

SLOTS = ("search", "plan-1", "rewrite", "fixed")
OUTCOMES = (("tie", 1.003, "within the margin of 1%"), ("regression", 0.94, "square 6% slower"),
            ("reject", None, "does not compile: rmsnorm.c:31: expected ';'"),
            ("runner-up", 1.06, "faster, but less than the kept one"))


def live(writer: Writer, seconds: float) -> None:
    """Update the slots and record candidates until the time is over."""
    round_, deadline = 4, time.monotonic() + seconds
    writer.start_round(Round(campaign=CAMPAIGN, n=round_, scope="hot", incumbent="c" * 40,
                             started_at=time.time()))
    writer.put_slots([Slot(campaign=CAMPAIGN, round=round_, slot=name, kind="planned",
                           backend="search", hypothesis=f"move knobs of {name}",
                           bottleneck="scalar-reduction", device="cpu") for name in SLOTS])
    random.seed(7)
    for tick in range(10**9):
        began = time.monotonic()
        if began > deadline:
            return
        for number, name in enumerate(SLOTS):
            trial = (tick + 6 * number) % 48 // 2
            writer.tick_slot(CAMPAIGN, round_, name, stage="searching",
                             detail=f"trial {trial} of 24, best {1 + trial / 97:.2f}x",
                             progress=((tick + 6 * number) % 48) / 48)
        if tick % 4 == 3:
            judge(writer, round_, tick)
        time.sleep(max(0.0, 0.5 - (time.monotonic() - began)))


def judge(writer: Writer, round_: int, tick: int) -> None:
    """Capture a candidate and record verdict and decision on it."""
    name, (kind, ratio, reason) = SLOTS[tick // 4 % 4], OUTCOMES[tick // 4 % 4]
    id = f"{random.getrandbits(48):012x}"
    writer.add_candidate(Candidate(
        campaign=CAMPAIGN, id=id, round=round_, slot=name, base_commit="c" * 40,
        base_tree="t" * 40, patch_path="none", patch_sha256=id, bottleneck="scalar-reduction",
        hypothesis=f"BLOCK={tick} in the inner loop", state="captured", created_at=time.time()))
    measured = ratio and ratio + random.uniform(-0.004, 0.004)
    verdict = writer.add_verdict(CAMPAIGN, id, verdict_of(measured, 0.01, reason),
                                 purpose="candidate")
    writer.add_decision(CAMPAIGN, id, kind, reason, round=round_, actor="judge", verdict=verdict)
    writer.set_candidate_state(CAMPAIGN, id, "closed", reason=reason)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--seconds", type=float, default=3600.0)
    args = parser.parse_args()
    writer = Writer(args.workspace)
    taken = lease.acquire(writer, CAMPAIGN)
    print("live", flush=True)
    try:
        live(writer, args.seconds)
    finally:
        lease.release(writer, taken)


if __name__ == "__main__":
    main()
