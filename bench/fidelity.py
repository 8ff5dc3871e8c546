"""Measure how often verdicts report a false gain, and how often they find a planted one.

    python bench/fidelity.py [--aa 200] [--planted 100]

Each trial on this CPU is one whole `evaluate` of a C kernel whose running time is set by a
constant: the same on both sides (A/A), or a smaller one for the candidate, which plants a gain of
10 % or 5 %. With --gpu, bench/fidelity_gpu.py does the same with Triton kernels.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import fidelity_gpu
import machine

from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.settings import Settings, Trees
from harness.tasks import task_file
from harness.timing.plan import Plan

KERNEL = """#include <stdint.h>
#define WORK {work}  /* {note} */
void scale(const float *x, float *out, int64_t n) {{
    float spin[16] = {{0}};
    for (int64_t w = 0; w < WORK; w++)
        for (int lane = 0; lane < 16; lane++) spin[lane] = spin[lane] * 0.5f + x[w % n];
    float nothing = 0.0f;
    for (int lane = 0; lane < 16; lane++) nothing += spin[lane] * 0.0f;
    for (int64_t i = 0; i < n; i++) out[i] = 2.0f * x[i] + nothing;
}}
"""
REFERENCE = "def scale(x):\n    return 2.0 * x\n"
TASK = """kind: kernel
op: scale
language: c
source: scale.c
entry: scale
reference: reference.py:scale
args:
  - {name: x, dtype: float32, shape: [n]}
  - {name: out, dtype: float32, shape: [n], role: output}
  - {name: n, dtype: int64, value: n}
classes:
  - {name: one, shape: {n: 4096}}
"""
FULL = 12_000


def project(folder: Path, work: int, note: str) -> Path:
    folder.mkdir()
    (folder / "scale.c").write_text(KERNEL.format(work=work, note=note))
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "task.yaml").write_text(TASK)
    return folder


def trials(base: Path, candidate: Path, count: int, alpha: float, label: str) -> dict[str, Any]:
    """Judge `candidate` against `base` repeatedly; return the outcomes and effects."""
    task = task_file.load(base / "task.yaml")
    device = inventory.find("cpu")
    outcomes: list[str] = []
    effects: list[float] = []
    pairs: list[int] = []
    began = time.monotonic()
    for number in range(count):
        with tempfile.TemporaryDirectory(prefix="kopt-bench-") as scratch:
            verdict = evaluate(
                task, Trees(candidate=str(candidate), incumbent=str(base), reference=str(base)),
                device, Settings(scratch=scratch, plan=Plan(alpha=alpha), always_time=True,
                                 distributions=("normal",)))
        assert verdict.valid and verdict.correct, verdict.rejected_reason
        row = verdict.rows[0]
        assert row.log_ratio is not None
        outcomes.append(row.outcome)
        effects.append(math.expm1(row.log_ratio))
        pairs.append(row.pairs)
        if (number + 1) % 20 == 0:
            print(f"{label}: {number + 1} of {count}, {outcomes.count('faster')} faster",
                  flush=True)
    return {"trials": count, "faster": outcomes.count("faster"), "tie": outcomes.count("tie"),
            "slower": outcomes.count("slower"), "mean_effect": fmean(effects),
            "sd_effect": stdev(effects), "mean_pairs": fmean(pairs),
            "seconds_per_verdict": (time.monotonic() - began) / count, "effects": effects,
            "pairs": pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--aa", type=int, default=200)
    parser.add_argument("--planted", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.001)
    parser.add_argument("--gpu", action="store_true",
                        help="measure on a GPU with fidelity_gpu.py, which uses the options below")
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--steps", nargs="+", choices=list(fidelity_gpu.STEPS),
                        default=["A/A", "2 % (5 % if short)", "1.2 % (5 % if short)"])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.gpu:
        fidelity_gpu.main(args.seconds, args.workers, args.out, args.steps)
        return
    results: dict[str, Any] = {"alpha_per_verdict": args.alpha}
    with tempfile.TemporaryDirectory(prefix="kopt-bench-") as made:
        base = project(Path(made) / "base", FULL, "base")
        for label, share, count in (("A/A", 1.0, args.aa), ("gain 10%", 1 / 1.10, args.planted),
                                    ("gain 5%", 1 / 1.05, args.planted)):
            if count:
                side = project(Path(made) / label.replace("/", "").replace(" ", ""),
                               round(FULL * share), label)
                results[label] = trials(base, side, count, args.alpha, label)
    for label, result in results.items():
        if isinstance(result, dict):
            print(f"{label:9} called faster {result['faster']} of {result['trials']}; measured "
                  f"{result['mean_effect']:+.2%} ± {result['sd_effect']:.2%}; "
                  f"{result['mean_pairs']:.1f} process pairs, "
                  f"{result['seconds_per_verdict']:.1f} s a verdict")
    print(machine.write("fidelity", results))


if __name__ == "__main__":
    main()
