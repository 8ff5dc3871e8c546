"""How far a verdict can be trusted on a GPU: false gains, and planted ones that are found.

    python bench/fidelity.py --gpu [--seconds 480] [--workers 3] [--steps "A/A" "0.5 % (thorough)"]

Six Triton kernels, from 2 us to 1 ms, are the config classes of one task; a trial is the whole
measurement of a verdict, in its own processes, and each class of a trial is one decision. Several
trials share one check. The candidate is always the plain source. In an A/A trial the incumbent is
the same but for a comment; in the others it does extra real work, arithmetic whose result nothing
needs or rows done twice, by an amount calibrated beforehand. Every trial is appended to a file of
JSON lines, so that runs on several days and cards pool into one table. A step is calibrated once
for each model of card in a file, and the step that is furthest from its goal runs next.
"""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import machine
from fidelity_kernels import CLASSES, source, task, write

from harness.correctness.check import CorrectnessCheck
from harness.correctness.tolerance import Tolerance
from harness.evaluate import verdict_rows
from harness.evaluate.evaluate import evaluate
from harness.evaluate.measure import Measurement
from harness.evaluate.verdict_rows import EvaluationResults
from harness.formats.json_codec import to_builtins
from harness.runners.session import Session
from harness.settings import Settings, Trees
from harness.timing.plan import Plan
from harness.verdict import Row, Verdict

ALPHA = 0.001
NORMAL = Plan(alpha=ALPHA)
LONG = [name for name, us in CLASSES.items() if us >= 30]
SHORT = [name for name, us in CLASSES.items() if us < 10]


@dataclass(frozen=True, kw_only=True)
class PlantedGain:
    """The gains to plant in long and in other kernels, and how many decisions to collect."""

    gain: float = 0.0
    short: float | None = None
    """The gain of the kernels that are not long; None: only long kernels are measured."""
    decisions: int = 100
    plan: Plan = NORMAL

    @property
    def classes(self) -> list[str]:
        return LONG if self.short is None else list(CLASSES)

    def planted(self, name: str) -> float:
        return self.gain if name in LONG else self.short or 0.0

    def counts(self, name: str) -> bool:
        """Return whether a decision on a kernel counts for the goal."""
        return not self.gain or name in LONG


SMALL = replace(NORMAL, margin=0.005)
STEPS = {"A/A": PlantedGain(short=0.0, decisions=500),
         "2 % (5 % if short)": PlantedGain(gain=0.02, short=0.05),
         "1.2 % (5 % if short)": PlantedGain(gain=0.012, short=0.05),
         "0.5 % (margin 0.5 %)": PlantedGain(gain=0.005, decisions=50, plan=SMALL),
         "0.5 % (thorough)": PlantedGain(gain=0.005, decisions=50,
                                         plan=SMALL.with_effort("thorough"))}

SLOPES = {"softmax-64x1024": 0.0020, "softmax-1024x2048": 0.0017, "softmax-6144x4096": 1 / 6144,
          "matmul-2560": 0.00012, "matmul-4096": 0.00011, "iterated-1024x2048": 1 / 118_000}
"""By class: about how much a unit of extra work slows the kernel; a calibration starts from it."""
WHOLE = {"softmax-6144x4096": 1, "iterated-1024x2048": 16}
"""Extra work is a multiple of this, otherwise of 4: the cost of a loop's remainder varies."""
TURNS = 3
TOGETHER = 5
"""Trials that share one check."""


class Bench:
    def __init__(self, out: Path, seconds: float, steps: Collection[str]) -> None:
        self.device = machine.card()
        self.zygote = machine.zygote(self.device)
        self.out = machine.JsonLines(out, printed=0)
        self.keep, self.deadline = self.out.keep, time.monotonic() + seconds
        self._lock = threading.Lock()
        self.under_way: Counter[str] = Counter()
        self.task = task()
        self.steps = {name: STEPS[name] for name in steps}

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

    def measured(self, step: PlantedGain, extra: dict[str, int], comment: str, plan: Plan,
                 count: int) -> Iterator[tuple[list[Row], Measurement, float]]:
        """Yield `count` measurements after one check of the candidate."""
        with tempfile.TemporaryDirectory(prefix="kopt-bench-") as name:
            trees = self.trees(Path(name), extra, comment)
            settings = Settings(scratch=f"{name}/scratch", plan=plan, distributions=("normal",))
            target = machine.only(self.task, *step.classes)
            with Session(target, self.device, settings, None, self.zygote) as session:
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
                            target=target, plan=plan, errors=check.errors, timings=timings,
                            ceilings=None, on_cpu=False, same=False))
                        yield list(rows), measurement, time.monotonic() - began

    def calibrate(self, step: PlantedGain) -> dict[str, int]:
        """Return by class the extra work that slows the incumbent by the step's gain."""
        offset = dict.fromkeys(step.classes, 0.0)
        extra: dict[str, int] = {}
        plan = Plan(looks=(6 if step.gain >= 0.01 else 12,), alpha=0.05)
        for turn in range(TURNS + 1):
            extra = {name: max(1, round((step.planted(name) - offset[name]) / SLOPES[name]
                                        / WHOLE.get(name, 4))) * WHOLE.get(name, 4)
                     for name in step.classes}
            if turn == TURNS:
                break
            for rows, _, _ in self.measured(step, extra, "calibration", plan, 1):
                seen = {row.config_class: math.expm1(row.log_ratio or 0.0) for row in rows}
                self.keep("calibration", turn=turn, gain=step.gain, extra=extra, seen=seen)
                for name, share in seen.items():  # the third turn is averaged with the second
                    fresh = share - extra[name] * SLOPES[name]
                    offset[name] = fresh if turn < 2 else (fresh + offset[name]) / 2
        return extra

    def extra(self, name: str) -> dict[str, int]:
        """Return a step's extra work, calibrated now or by an earlier run on this model of card."""
        step = self.steps[name]
        known = [line for line in self.out.read() if line["kind"] == "extra"
                 and line["step"] == name and line["card"] == self.device.name
                 and list(line["extra"]) == step.classes]
        if known or not step.gain:
            return dict(known[-1]["extra"]) if known else {}
        extra = self.calibrate(step)
        self.keep("extra", step=name, card=self.device.name, extra=extra)
        return extra

    def trials(self, step: str, extra: dict[str, int], number: int) -> None:
        for rows, measurement, seconds in self.measured(
                self.steps[step], extra, f"{step} {number}", self.steps[step].plan, TOGETHER):
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
        if not any(line["kind"] == "cost" for line in self.out.read()):
            self.cost()
        with ThreadPoolExecutor() as pool:
            extras = dict(zip(self.steps, pool.map(self.extra, self.steps), strict=True))
        jobs = self._jobs(extras)
        threads = [threading.Thread(target=self._work, args=(jobs,)) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _jobs(self, extras: dict[str, dict[str, int]]) -> Iterator[tuple[str, dict[str, int], int]]:
        """Yield jobs of TOGETHER trials, always for the step that is furthest from its goal."""
        number = 0
        while time.monotonic() < self.deadline:
            done = Counter(line["step"] for line in self.out.read() if line["kind"] == "trial"
                           for row in line["rows"] if STEPS[line["step"]].counts(row["class"]))
            number += 1

            def share(step: str, done: Counter[str] = done) -> float:
                decided = sum(map(STEPS[step].counts, STEPS[step].classes))
                return (done[step] + self.under_way[step] * decided) / STEPS[step].decisions

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


def main(seconds: float, workers: int, out: Path | None, steps: Collection[str]) -> None:
    if out is None:
        machine.RESULTS.mkdir(exist_ok=True)
        out = machine.RESULTS / "fidelity-gpu.jsonl"
    bench = Bench(out, seconds, steps)
    bench.run(workers)
    print(table(bench.out.read()))
