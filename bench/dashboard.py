"""Measure the dashboard on a pseudo-terminal: first paint, opening, a transcript, bytes, memory.

Prints each number with its spread and writes bench/results/dashboard-<machine>-<date>.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from engine.journal.records import Candidate, DecisionRow, Event, VerdictRow  # noqa: E402
from engine.journal.rows import payload, store  # noqa: E402
from engine.workers.transcript import LIMIT_BYTES  # noqa: E402
from tests.support.agents import transcript_case  # noqa: E402
from tests.support.dashboards.dashboard_journal import CAMPAIGN, Journal, make  # noqa: E402
from tests.support.dashboards.dashboard_terminal import Terminal, dashboard  # noqa: E402

RUNS = 15
EVENTS = 100_000
IDLE_S = 10.0
BUSY_S = 30.0
PAINTED = b"Campaigns"
FILLED = b"finished"


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median, the least and the largest value, and the number of runs."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values),
            "runs": len(values)}


def python_start_s() -> float:
    """Return the seconds that a new interpreter takes to print a word."""
    terminal = Terminal([sys.executable, "-c", "print('READY')"])
    try:
        return terminal.until(b"READY")
    finally:
        terminal.close()


def opening_times_s(workspace: Path, marks: Sequence[bytes], *options: str) -> list[float]:
    """Return the start time of a bare interpreter, then how much later each mark appears.

    The bare interpreter is timed right before, so that other work on the machine slows both.
    """
    start_s = python_start_s()
    terminal = Terminal(dashboard(workspace, *options))
    try:
        return [start_s, *(terminal.until(mark) - start_s for mark in marks)]
    finally:
        terminal.close()


def long_campaign(workspace: Path) -> None:
    """Give the campaign a history of 100,000 events: 20,000 candidates with all their rows."""
    journal = Journal(workspace)
    body = payload({"valid": False, "rejected_reason": "does not compile"})
    with journal.db as db:
        for number in range(EVENTS // 5):
            id, at = f"{number:012x}", time.time() - 90_000 + number * 4
            verdict = VerdictRow(
                id=1000 + number, campaign=CAMPAIGN, candidate=id, purpose="candidate",
                incumbent_tree="t", harness_version="1", valid=False, correct=False,
                latency_us=None, speedup=None, low=None, high=None, body=body, at=at)
            rows = [
                Candidate(campaign=CAMPAIGN, id=id, round=1, slot="search", base_commit="b" * 40,
                          base_tree="t" * 40, patch_path="none", patch_sha256=id, state="closed",
                          hypothesis=f"BLOCK={number}", bottleneck="memory", created_at=at),
                verdict,
                DecisionRow(id=1000 + number, campaign=CAMPAIGN, candidate=id,
                            verdict=1000 + number, round=1, kind="reject",
                            reason="does not compile", actor="judge", commit="", at=at),
            ]
            for row in rows:
                store(db, row)
            for kind in ("slot.start", "candidate.captured", "verdict", "decision", "slot.end"):
                event = Event(seq=0, campaign=CAMPAIGN, at=at, kind=kind, ref=id,
                              payload=payload({"slot": "search", "candidate": id}))
                store(db, event, without="seq")
    journal.close()


def long_transcript(workspace: Path) -> None:
    """Give the campaign an agent's slot with a full transcript: 8 MiB in some 2000 entries."""
    transcript_case.add_slot(workspace, now=time.time())
    transcript_case.write(transcript_case.path_of(workspace), *transcript_case.session(
        LIMIT_BYTES // 8_000, output=f"{'x' * 76}\n" * 100))


def transcript_opening_s(workspace: Path) -> float:
    """Return the seconds from the key press until the terminal gets the transcript's end."""
    terminal = Terminal(dashboard(workspace, "--campaign", CAMPAIGN))
    try:
        terminal.until(b"verdicts")
        terminal.quiet(1.0)
        terminal.press(b"G")
        terminal.until(transcript_case.SLOT.encode())
        terminal.quiet(0.5)
        began = time.perf_counter()
        terminal.press(b"\r")
        terminal.until(b"transcript is full")
        return time.perf_counter() - began
    finally:
        terminal.close()


def idle_bytes(workspace: Path) -> float:
    """Return the bytes per second that a dashboard writes while nothing happens."""
    terminal = Terminal(dashboard(workspace, "--campaign", CAMPAIGN))
    try:
        terminal.until(b"verdicts")
        terminal.quiet(3.0)
        return terminal.read(IDLE_S) / IDLE_S
    finally:
        terminal.close()


def busy(workspace: Path) -> tuple[float, int]:
    """Return the bytes per second written while a campaign runs (80x24), and the resident bytes."""
    writer = subprocess.Popen(
        [sys.executable, f"{ROOT}/tests/support/dashboards/dashboard_writer.py", str(workspace)],
        stdout=subprocess.PIPE)
    terminal = Terminal(dashboard(workspace, "--campaign", CAMPAIGN))
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        terminal.until(b"trial")
        terminal.read(3.0)
        began = time.perf_counter()
        count = 0
        while time.perf_counter() - began < BUSY_S:
            count += terminal.read(min(1.0, BUSY_S))
        return count / (time.perf_counter() - began), terminal.resident_bytes
    finally:
        terminal.close()
        writer.terminate()
        writer.wait()


def measure() -> dict[str, object]:
    """Measure all numbers; return them by name."""
    with tempfile.TemporaryDirectory(prefix="kopt-bench-") as folder:
        small, large = (make(Path(folder) / name, time.time()) for name in ("small", "large"))
        long_campaign(large)
        talking = make(Path(folder) / "talking", time.time())
        long_transcript(talking)
        few = [opening_times_s(small, (PAINTED, FILLED)) for _ in range(RUNS)]
        many = [opening_times_s(large, (b"does not compile",), "--campaign", CAMPAIGN)
                for _ in range(RUNS)]
        rate, resident = busy(small)
        return {
            "python_start_s": spread([one[0] for one in few]),
            "first_paint_s": spread([one[1] for one in few]),
            "first_data_s": spread([one[2] for one in few]),
            "open_100k_events_s": spread([one[1] for one in many]),
            "open_transcript_8mb_s": spread([transcript_opening_s(talking) for _ in range(RUNS)]),
            "idle_bytes_per_s": idle_bytes(large), "running_bytes_per_s": rate,
            "resident_mb": resident / 1e6,
        }


LIMITS = (("first_paint_s", 0.25), ("open_100k_events_s", 0.5),
          ("open_transcript_8mb_s", 0.25), ("idle_bytes_per_s", 0.0),
          ("running_bytes_per_s", 1000.0), ("resident_mb", 120.0))


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    load = os.getloadavg()[0]
    found = measure()
    machine = re.sub(r"\W+", "-", f"{platform.node()}-{platform.machine()}")
    today = datetime.date.today().isoformat()
    out = ROOT / "bench" / "results" / f"dashboard-{machine}-{today}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"machine": machine, "python": platform.python_version(),
                               "date": today, "load": load, **found}, indent=1) + "\n")
    worst = 0
    for name, value in found.items():
        number = value["median"] if isinstance(value, dict) else value
        limit = dict(LIMITS).get(name)
        about = ""
        if isinstance(value, dict):
            about = f" ({value['least']:.3f} to {value['most']:.3f})"
        assert isinstance(number, float)
        missed = limit is not None and number > limit
        worst |= missed
        said = "" if limit is None else f"   at most {limit:g}: {'missed' if missed else 'ok'}"
        print(f"{name:22} {number:9.3f}{about}{said}")
    print(f"written to {out.relative_to(ROOT)}")
    return int(worst)


if __name__ == "__main__":
    sys.exit(main())
