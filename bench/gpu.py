"""Measure verdicts on a GPU: real gains, false gains, and the seconds they take.

    python bench/gpu.py [--seconds 400] [--aa 20] [--trials 10] [--steps gain loop same]

Each step is a whole `evaluate` or `loop` of a Triton example. A/A trials differ from the
incumbent only by a comment. The result is written after every step, so that an interrupted run
keeps its results.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import machine

from harness.case import DISTRIBUTIONS
from harness.evaluate.evaluate import evaluate
from harness.formats.json_codec import to_builtins
from harness.isolation import guard
from harness.isolation.guard import Confine
from harness.loop.loop import loop
from harness.search.space import knobs
from harness.search.trials.trials import SearchJob
from harness.settings import Settings, Trees
from harness.tasks import task_file
from harness.timing.plan import Plan
from harness.verdict import Value, Verdict

EXAMPLES = Path(__file__).parent.parent / "examples"
GOOD: dict[str, dict[str, Value]] = {
    "softmax_triton": {"VARIANT": "whole", "BLOCK": 4096, "PER_THREAD": 16},
    "matmul_triton": {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "NUM_WARPS": 8,
                      "NUM_STAGES": 3},
}


class Bench:
    def __init__(self, out: Path, deadline: float) -> None:
        self.device = machine.card()
        self.out, self.deadline = out, deadline
        self.result: dict[str, Any] = {"machine": machine.describe(), **machine.gpu_versions(),
                                       "device": to_builtins(self.device)}

    def keep(self, name: str, value: object) -> None:
        self.result[name] = value
        self.out.write_text(json.dumps(to_builtins(self.result), indent=1))
        print(f"{time.monotonic() - BEGAN:6.1f} s  {name}", flush=True)

    def late(self) -> bool:
        return time.monotonic() > self.deadline

    def evaluate(self, example: str, source: str, base: str, plan: Plan,
                 distributions: tuple[str, ...] = DISTRIBUTIONS) -> Verdict:
        task = task_file.load(EXAMPLES / example / "task.yaml")
        with tempfile.TemporaryDirectory() as folder:
            trees = {side: Path(folder) / side for side in ("candidate", "incumbent")}
            for side, text in (("candidate", source), ("incumbent", base)):
                trees[side].mkdir()
                (trees[side] / "kernel.py").write_text(text)
            self.stages: list[tuple[float, str]] = []
            began = time.monotonic()
            return evaluate(
                task, Trees(candidate=str(trees["candidate"]), incumbent=str(trees["incumbent"]),
                            reference=str(EXAMPLES / example)), self.device,
                Settings(scratch=f"{folder}/scratch", plan=plan, distributions=distributions),
                progress=lambda stage, detail, _: self.stages.append(
                    (round(time.monotonic() - began, 2), f"{stage} {detail}")))

    def gain(self, example: str) -> None:
        base = knobs.read(EXAMPLES / example / "kernel.py")
        good = knobs.apply(base, GOOD[example], language="triton")
        verdict = self.evaluate(example, good, base, Plan())
        self.keep(f"gain {example}", brief(verdict) | {"stages": self.stages})

    def search(self, example: str, trials: int) -> None:
        task = task_file.load(EXAMPLES / example / "task.yaml")
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            found = loop(task, SearchJob(tree=str(EXAMPLES / example), budget=trials, seed=7,
                                   reference=str(EXAMPLES / example)), self.device,
                         Settings(scratch=folder))
        seconds = time.monotonic() - began
        self.keep(f"loop {example}", {
            "seconds": seconds, "seconds_a_trial": seconds / len(found.trials),
            "best": found.best, "log_ratio": found.log_ratio, "space": found.space_size,
            "trials": [{"config": t.config, "log_ratio": t.log_ratio, "us": t.latency_us,
                        "reason": t.reason, "seconds": t.wall_s} for t in found.trials]})

    def same(self, example: str, count: int) -> None:
        """Run A/A trials of two equal, tuned kernels, so that they are as short as possible."""
        base = knobs.apply(knobs.read(EXAMPLES / example / "kernel.py"), GOOD[example],
                           language="triton")
        seen: list[dict[str, Any]] = []
        for number in range(count):
            if self.late():
                break
            verdict = self.evaluate(example, f"{base}# {number}\n", base, Plan(looks=(4, 6)),
                                    ("normal",))
            seen.append(brief(verdict) | {"stages": self.stages if number == 0 else []})
            rows = [row for one in seen for row in one["rows"]]
            self.keep(f"same {example}", {
                "evaluations": len(seen), "rows": len(rows),
                "called_faster": sum(row["outcome"] == "faster" for row in rows),
                "called_slower": sum(row["outcome"] == "slower" for row in rows),
                "seconds": median(one["seconds"] for one in seen), "raw": seen})


def brief(verdict: Verdict) -> dict[str, Any]:
    return {"valid": verdict.valid, "correct": verdict.correct, "speedup": verdict.speedup,
            "reason": verdict.rejected_reason, "low": verdict.speedup_low,
            "seconds": verdict.wall_s, "pct_of_roofline": verdict.pct_of_roofline,
            "notes": verdict.notes, "launch": [e.detail for e in verdict.evidence],
            "rows": [{"class": r.config_class, "outcome": r.outcome, "us": r.latency_us,
                      "incumbent_us": r.incumbent_us, "log_ratio": r.log_ratio,
                      "stderr": r.stderr, "pairs": r.pairs, "floor_us": r.floor_us,
                      "roofline_us": r.roofline_us,
                      "rel_err": r.max_rel_err, "note": r.note} for r in verdict.rows]}


def confinement(env: dict[str, str]) -> dict[str, Any]:
    """Run CUDA inside and outside of private namespaces; return the result of each."""
    code = ("import time; t = time.perf_counter(); import torch; a = time.perf_counter() - t; "
            "torch.ones(8, device='cuda').sum().item(); print(a, time.perf_counter() - t)")
    found = {}
    for name, confine in (("free", None), ("confined", Confine(required=True)), ):
        with tempfile.TemporaryDirectory() as folder:
            if confine is not None:
                confine = replace(confine, writable=(folder,))
            outcome = guard.run([sys.executable, "-c", code], cwd=Path(folder), confine=confine,
                                env=guard.clean_env(env, home=Path(folder)))
        found[name] = {"ok": outcome.ok, "seconds": outcome.wall_s,
                       "import_and_context_s": outcome.stdout.decode().split(),
                       "stderr": outcome.stderr.decode(errors="replace")[-300:]}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=400.0)
    parser.add_argument("--aa", type=int, default=20)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--steps", nargs="+", default=["gain", "loop", "same"])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    name = f"gpu-{time.strftime('%Y%m%d')}.json"
    bench = Bench(args.out or machine.RESULTS / name, BEGAN + args.seconds)
    bench.keep("confinement", confinement(bench.device.visible_env))
    kinds: dict[str, Callable[[str], None]] = {
        "gain": bench.gain, "same": lambda example: bench.same(example, args.aa // 2),
        "loop": lambda example: bench.search(example, args.trials)}
    steps = [partial(kinds[kind], example) for kind in args.steps for example in GOOD]
    for number, step in enumerate(steps):
        try:
            if not bench.late():
                step()
        except Exception:  # one failed step must not end the others
            bench.keep(f"failed {number}", traceback.format_exc().splitlines()[-12:])


BEGAN = time.monotonic()
if __name__ == "__main__":
    main()
