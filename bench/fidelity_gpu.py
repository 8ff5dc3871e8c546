"""How far a verdict can be trusted on a GPU: false gains, and planted ones that are found.

    python bench/fidelity.py --gpu [--seconds 480] [--workers 3]

Six Triton kernels, from 2 us to 1 ms, are the config classes of one task; a trial is the whole
measurement of a verdict, in processes of its own, and every class of it one decision. Some trials
share one check. The candidate is always the plain source. In an A/A trial the incumbent is the same
but for a comment; in the others it does extra real work, arithmetic whose result nothing needs or
rows done twice, by an amount calibrated beforehand. Every trial is appended to a file of JSON
lines, so that runs on several days and cards pool into one table; a calibration is made once a
model of card and file, and whatever is furthest from its goal comes next.
"""

from __future__ import annotations

import json
import math
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import machine
from fidelity_kernels import CLASSES, source, task, write

from harness.compile import kernel
from harness.correctness.check import CorrectnessCheck
from harness.correctness.tolerance import Tolerance
from harness.evaluate import verdict_rows
from harness.evaluate.evaluate import evaluate
from harness.evaluate.measure import Measurement
from harness.evaluate.verdict_rows import EvaluationResults
from harness.formats.json_codec import to_builtins
from harness.isolation.zygote_client import Zygote
from harness.runners.session import Session
from harness.settings import Settings, Trees
from harness.timing.plan import Plan
from harness.verdict import Row, Verdict

ALPHA = 0.001
LONG = [name for name, us in CLASSES.items() if us >= 30]
SHORT = [name for name, us in CLASSES.items() if us < 10]
STEPS = {"A/A": (0.0, 0.0), "2 % (5 % if short)": (0.02, 0.05),
         "1.2 % (5 % if short)": (0.012, 0.05)}
"""By step the gain planted in kernels, and in short ones."""
GOALS = {"A/A": 500, "2 % (5 % if short)": 100, "1.2 % (5 % if short)": 100}
"""By step the number of decisions to reach, on long kernels where the gain depends on that."""

SLOPES = {"softmax-64x1024": 0.0020, "softmax-1024x2048": 0.0017, "softmax-6144x4096": 1 / 6144,
          "matmul-2560": 0.00012, "matmul-4096": 0.00011, "iterated-1024x2048": 1 / 118_000}
"""By class the approximate cost of a unit of work, from which a calibration starts."""
WHOLE = {"softmax-6144x4096": 1, "iterated-1024x2048": 16}
"""Units added at a time, otherwise 4: the cost of a loop's remainder is unpredictable."""
TURNS = 3
TOGETHER = 5
"""Trials that share one check."""


class Bench:
    def __init__(self, out: Path, seconds: float) -> None:
        self.device = machine.card()
        place = kernel.place_on(self.device, "triton", scratch="", python=None, env={})
        kind = kernel.kind_of(place, "triton")
        assert kind is not None
        self.zygote = Zygote.start(kind)  # one for all, as a campaign has it
        self.out, self.deadline = out, time.monotonic() + seconds
        self._lock = threading.Lock()
        self.under_way: Counter[str] = Counter()
        self.task = task()

    def keep(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, "date": time.strftime("%Y-%m-%d %H:%M"), **fields})
        with self._lock, self.out.open("a") as file:
            file.write(line + "\n")

    def judge(self, comment: str) -> Verdict:
        """Return the verdict on the plain source against itself, with only a zygote running."""
        with tempfile.TemporaryDirectory(prefix="kopt-bench-") as name:
            trees = self.trees(Path(name), {}, comment)
            return evaluate(self.task, trees, self.device, Settings(
                scratch=f"{name}/scratch", plan=Plan(alpha=ALPHA)), zygote=self.zygote)

    def trees(self, folder: Path, extra: dict[str, int], comment: str) -> Trees:
        write(folder / "candidate", source({}))
        write(folder / "incumbent", source(extra) + f"# {comment}\n")
        return Trees(candidate=f"{folder}/candidate", reference=f"{folder}/candidate",
                     incumbent=f"{folder}/incumbent")

    def measured(self, extra: dict[str, int], comment: str, plan: Plan,
                 count: int) -> Iterator[tuple[list[Row], Measurement, float]]:
        """Yield `count` measurements after one check of the candidate."""
        with tempfile.TemporaryDirectory(prefix="kopt-bench-") as name:
            trees = self.trees(Path(name), extra, comment)
            settings = Settings(scratch=f"{name}/scratch", plan=plan, distributions=("normal",))
            with Session(self.task, self.device, settings, None, self.zygote) as session:
                candidate = session.make(Path(trees.candidate), "candidate")
                incumbent = session.make(Path(trees.incumbent), "incumbent")
                session.runners.starter.one_queue = candidate.one_stream and incumbent.one_stream
                with session.working() as held, \
                        session.oracle(Path(trees.reference), held) as oracle:
                    tolerance = Tolerance(session, oracle, Path(trees.reference))
                    check = CorrectnessCheck(session, oracle, tolerance, lambda *_: None)
                    assert check.run(candidate, held), check.errors
                    for _ in range(count):
                        began = time.monotonic()
                        measurement = Measurement(session, check, lambda *_: None)
                        timings = measurement.run(candidate, incumbent, held)
                        rows, _ = verdict_rows.rows(EvaluationResults(
                            target=self.task, plan=plan, errors=check.errors, timings=timings,
                            ceilings=None, on_cpu=False, same=False))
                        yield list(rows), measurement, time.monotonic() - began

    def calibrate(self, gains: tuple[float, float]) -> dict[str, int]:
        """Return by class how much extra work slows the incumbent by the given share."""
        goal = {name: gains[1] if name in SHORT else gains[0] for name in CLASSES}
        offset = dict.fromkeys(CLASSES, 0.0)
        extra: dict[str, int] = {}
        for turn in range(TURNS + 1):
            extra = {name: max(1, round((goal[name] - offset[name]) / SLOPES[name]
                                        / WHOLE.get(name, 4))) * WHOLE.get(name, 4)
                     for name in CLASSES}
            if turn == TURNS:
                break
            for rows, _, _ in self.measured(extra, "calibration", Plan(looks=(6,), alpha=0.05), 1):
                seen = {row.config_class: math.expm1(row.log_ratio or 0.0) for row in rows}
                self.keep("calibration", turn=turn, goal=goal, extra=extra, seen=seen)
                for name, share in seen.items():  # the mean of the last two turns, from the second
                    fresh = share - extra[name] * SLOPES[name]
                    offset[name] = fresh if turn < 2 else (fresh + offset[name]) / 2
        return extra

    def extra(self, step: str) -> dict[str, int]:
        """Return a step's extra work, calibrated in this run or an earlier one on such a card."""
        known = [line for line in self.lines() if line["kind"] == "extra"
                 and line["step"] == step and line["card"] == self.device.name
                 and line["extra"].keys() == CLASSES.keys()]
        if known or not any(STEPS[step]):
            return dict(known[-1]["extra"]) if known else {}
        extra = self.calibrate(STEPS[step])
        self.keep("extra", step=step, card=self.device.name, extra=extra)
        return extra

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    def trials(self, step: str, extra: dict[str, int], number: int) -> None:
        for rows, measurement, seconds in self.measured(extra, f"{step} {number}",
                                                        Plan(alpha=ALPHA), TOGETHER):
            self.keep("trial", step=step, seconds=round(seconds, 2), extra=extra, evidence=[
                          to_builtins(one) for one in measurement.evidence],
                      audit=[to_builtins(one) for one in measurement.findings],
                      rows=[{"class": row.config_class, "outcome": row.outcome,
                             "pairs": row.pairs, "log_ratio": row.log_ratio,
                             "stderr": row.stderr, "us": row.latency_us,
                             "incumbent_us": row.incumbent_us, "note": row.note} for row in rows])
            if time.monotonic() > self.deadline:
                return

    def cost(self) -> None:
        """Time verdicts on one class after another, as a user would wait for them."""
        whole = self.task
        for name in CLASSES:
            self.task = machine.only(whole, name)
            began = time.monotonic()
            verdict = self.judge(f"cost {name}")
            self.keep("cost", config_class=name, seconds=round(time.monotonic() - began, 2),
                      pairs=verdict.rows[0].pairs if verdict.rows else 0,
                      timed=[e.detail for e in verdict.evidence if e.kind == "cost"])
        self.task = whole

    def run(self, workers: int) -> None:
        self.keep("machine", **machine.describe(), versions=machine.gpu_versions(),
                  device=to_builtins(self.device))
        if not any(line["kind"] == "cost" for line in self.lines()):
            self.cost()
        with ThreadPoolExecutor() as pool:
            extras = dict(zip(STEPS, pool.map(self.extra, STEPS), strict=True))
        jobs = self._jobs(extras)
        threads = [threading.Thread(target=self._work, args=(jobs,)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _jobs(self, extras: dict[str, dict[str, int]]) -> Iterator[tuple[str, dict[str, int], int]]:
        """Yield groups of trials, always of the step that is furthest from its goal."""
        number = 0
        while time.monotonic() < self.deadline:
            done = Counter(line["step"] for line in self.lines() if line["kind"] == "trial"
                           for row in line["rows"] if counts(line["step"], row["class"]))
            number += 1

            def share(step: str, done: Counter[str] = done) -> float:
                decided = sum(counts(step, name) for name in CLASSES)
                return (done[step] + self.under_way[step] * decided) / GOALS[step]

            step = min(extras, key=share)
            self.under_way[step] += TOGETHER
            yield step, extras[step], number

    def _work(self, jobs: Iterator[tuple[str, dict[str, int], int]]) -> None:
        while True:
            with self._lock:
                job = next(jobs, None)
            if job is None or time.monotonic() > self.deadline:
                return
            try:
                self.trials(*job)
            finally:
                self.under_way[job[0]] -= TOGETHER


def counts(step: str, name: str) -> bool:
    """Return whether a decision on a kernel counts for a step's goal."""
    return step == "A/A" or name in LONG


def table(lines: list[dict[str, Any]]) -> str:
    """Return the pooled table of all trials."""
    decisions: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if line["kind"] == "trial":
            for row in line["rows"]:
                decisions[line["step"], row["class"]].append(row)
    text = [f"{'planted':22} {'kernel':10} {'us':>8} {'faster':>12} {'mean':>8} {'sd':>7} pairs"]
    for (step, name), rows in sorted(decisions.items()):
        effects = [math.expm1(row["log_ratio"]) for row in rows if row["log_ratio"] is not None]
        faster = sum(row["outcome"] == "faster" for row in rows)
        times = [row["us"] for row in rows if row["us"] is not None]
        text.append(f"{step:22} {name:10} {median(times or [0]):8.2f} {faster:5} of {len(rows):4}"
                    f" {fmean(effects or [0]):+8.2%}"
                    f" {stdev(effects) if len(effects) > 1 else 0:7.2%}"
                    f" {fmean(row['pairs'] for row in rows):5.1f}")
    costs = [line["seconds"] for line in lines if line["kind"] == "cost"]
    if costs:
        text.append(f"a verdict on one kernel, alone on the machine: median {median(costs):.1f} s")
    return "\n".join(text)


def main(seconds: float, workers: int, out: Path | None) -> None:
    if out is None:
        machine.RESULTS.mkdir(exist_ok=True)
        out = machine.RESULTS / "fidelity-gpu.jsonl"
    Bench(out, seconds).run(workers)
    print(table([json.loads(line) for line in out.read_text().splitlines()]))
