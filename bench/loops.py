"""Measure what `loop` finds for the Triton examples on a GPU within a time limit.

    python bench/loops.py [--examples softmax_triton matmul_triton] [--seconds 170] [--out FILE]

The loops start from poor defaults. The best configuration gets a verdict against the default, and
is then compared with the card itself: a matmul with cuBLAS (torch.matmul as the incumbent of a
verdict), a softmax with the copy bandwidth that `harness.roofline.measured_peaks` measures.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.verdict import Value

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import machine

from harness.evaluate.evaluate import evaluate
from harness.loop.loop import loop
from harness.roofline import measured_peaks
from harness.search.space import knobs
from harness.search.trials.trials import SearchJob, Trial
from harness.settings import Settings, Trees
from harness.tasks import task_file
from harness.tasks.target import Target
from harness.timing.plan import Plan
from harness.verdict import Verdict

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CUBLAS = "import torch\n\n\ndef matmul(a, b, c):\n    torch.matmul(a, b, out=c)\n"
LARGE = ("square", "large")
"""The classes of the matmul that are compared with cuBLAS."""
LARGE_BYTES = 256 << 20
"""Size from which tensors of a softmax are compared with the copy bandwidth."""


class Bench:
    def __init__(self, out: Path, seconds: float, budget: int, seed: int) -> None:
        self.device = machine.card()
        self.seconds, self.budget, self.seed = seconds, budget, seed
        self.zygote = machine.zygote(self.device)
        self.keep = machine.JsonLines(out).keep

    def example(self, name: str) -> None:
        task = task_file.load(EXAMPLES / name / "task.yaml")
        base = knobs.read(EXAMPLES / name / "kernel.py")
        best = self.searched(name, task)
        source = knobs.apply(base, best, language="triton")
        verdict = self.verdict(task, source, base)
        self.keep("verdict", example=name, best=best, **brief(verdict))
        if name == "matmul_triton":
            self.against_cublas(task, source)
        else:
            self.against_copy(task, verdict)

    def searched(self, name: str, task: Target) -> dict[str, Value]:
        """Return the best configuration that a loop finds within the time limit."""
        began, cancel = time.monotonic(), threading.Event()
        seen: list[tuple[float, Trial]] = []
        timer = threading.Timer(self.seconds, cancel.set)
        timer.start()

        def on_trial(trial: Trial) -> None:
            at = time.monotonic() - began
            seen.append((at, trial))
            self.keep("trial", example=name, at=round(at, 2), config=trial.config, tag=trial.tag,
                      log_ratio=trial.log_ratio, us=trial.latency_us, reason=trial.reason,
                      seconds=trial.wall_s)

        with tempfile.TemporaryDirectory() as folder:
            found = loop(task, SearchJob(tree=str(EXAMPLES / name), reference=str(EXAMPLES / name),
                                         budget=self.budget, seed=self.seed), self.device,
                         Settings(scratch=folder), on_trial=on_trial, cancel=cancel,
                         zygote=self.zygote)
        timer.cancel()
        kept = [at for at, trial in seen if trial.kept]
        self.keep("loop", example=name, seconds=time.monotonic() - began, trials=len(seen),
                  best_after_s=max(kept, default=None), best=found.best, space=found.space_size,
                  gain=None if found.log_ratio is None else math.exp(found.log_ratio))
        return dict(found.best)

    def verdict(self, task: Target, source: str, incumbent: str) -> Verdict:
        with tempfile.TemporaryDirectory() as folder:
            trees = {side: Path(folder) / side for side in ("candidate", "incumbent")}
            for side, text in (("candidate", source), ("incumbent", incumbent)):
                trees[side].mkdir()
                (trees[side] / "kernel.py").write_text(text)
            return evaluate(task, Trees(candidate=str(trees["candidate"]),
                                        incumbent=str(trees["incumbent"]),
                                        reference=str(EXAMPLES / f"{task.op}_triton")), self.device,
                            Settings(scratch=f"{folder}/scratch", plan=Plan()), zygote=self.zygote)

    def against_cublas(self, task: Target, source: str) -> None:
        large = replace(task, classes=tuple(task.config_class(name) for name in LARGE))
        verdict = self.verdict(large, source, CUBLAS)
        shares = {row.config_class: math.exp(row.log_ratio) for row in verdict.rows
                  if row.log_ratio is not None}
        self.keep("against cuBLAS", of_cublas=shares, **brief(verdict))

    def against_copy(self, task: Target, verdict: Verdict) -> None:
        found = measured_peaks.cached(self.device)
        if found is None:
            self.keep("no ceilings")
            return
        shares = {}
        for row in verdict.rows:
            config_class = task.config_class(row.config_class)
            moved = task.work(config_class)[1]
            if row.latency_us and moved >= 2 * LARGE_BYTES:
                shares[row.config_class] = moved / row.latency_us / 1e3 / found.copy_gb_per_s
        self.keep("against the copy", copy_gb_per_s=found.copy_gb_per_s, of_copy=shares,
                  tflops=found.tflops)


def brief(verdict: Verdict) -> dict[str, Any]:
    return {"valid": verdict.valid, "correct": verdict.correct, "speedup": verdict.speedup,
            "reason": verdict.rejected_reason, "seconds": verdict.wall_s, "notes": verdict.notes,
            "audit": [finding.detail for finding in verdict.audit],
            "evidence": [f"{one.kind}: {one.detail}" for one in verdict.evidence],
            "rows": [{"class": row.config_class, "us": row.latency_us,
                      "incumbent_us": row.incumbent_us, "log_ratio": row.log_ratio,
                      "pct_of_roofline": row.pct_of_roofline, "note": row.note}
                     for row in verdict.rows]}


def run(bench: Bench, names: Sequence[str]) -> None:
    for name in names:
        try:
            bench.example(name)
        except Exception:  # one failed example must not end the others
            bench.keep("failed", example=name, text=traceback.format_exc().splitlines()[-12:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--examples", nargs="+", default=["softmax_triton", "matmul_triton"])
    parser.add_argument("--seconds", type=float, default=170.0, help="time limit of each loop")
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path,
                        default=machine.RESULTS / f"loops-{time.strftime('%Y-%m-%d')}.jsonl")
    args = parser.parse_args()
    bench = Bench(args.out, args.seconds, args.budget, args.seed)
    bench.keep("machine", **machine.describe(), versions=machine.gpu_versions(),
               given=vars(args) | {"out": str(args.out)})
    run(bench, args.examples)
    bench.zygote.close()


if __name__ == "__main__":
    main()
