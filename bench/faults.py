"""Time GPU verdicts on hanging and illegally writing kernels, and judge a right one after each.

    python bench/faults.py [--limits 10 20] [--out FILE]

Each candidate gets a whole verdict beside a running zygote, as in a campaign, and its wall time is
compared with the limit of a call; the verdict after it, on the same card, must be right.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import machine

from harness.evaluate.evaluate import evaluate
from harness.isolation.zygote_client import Zygote
from harness.settings import Settings, Trees
from harness.tasks import task_file
from harness.timing.plan import Plan

SOURCE = """\
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def double(x, out):
    n = x.numel()
    double_kernel[(triton.cdiv(n, 1024),)](x, out, n, 1024)
"""
ENDLESS = SOURCE.replace("    tl.store", "    while tl.atomic_add(out, 0.0) != 12345.0: pass\n"
                         "    tl.store")
ILLEGAL = SOURCE.replace("out + at", "out + at + (1 << 40)")
TASK = """\
kind: kernel
op: double
language: triton
source: kernel.py
entry: double
reference: reference.py:double
args:
  - {name: x, dtype: float32, shape: [n]}
  - {name: out, dtype: float32, shape: [n], role: output}
classes:
  - {name: one, shape: {n: 16777216}}
"""
MOST_EXTRA_S = 5.0


def verdict(folder: Path, source: str, limit_s: float | None, zygote: Zygote) -> dict[str, Any]:
    sources = {"candidate": source, "incumbent": SOURCE + f"# before {folder.name}\n"}
    for side, text in sources.items():
        (folder / side).mkdir(parents=True)
        (folder / side / "kernel.py").write_text(text)
        (folder / side / "reference.py").write_text("def double(x):\n    return 2 * x\n")
    (folder / "task.yaml").write_text(TASK)
    began = time.monotonic()
    # the static audit is off: it would report the endless loop
    seen = evaluate(task_file.load(folder / "task.yaml"),
                    Trees(candidate=f"{folder}/candidate", incumbent=f"{folder}/incumbent",
                          reference=f"{folder}/incumbent"), machine.card(),
                    Settings(scratch=f"{folder}/scratch", plan=Plan(), static_audit=False,
                             wall_s=limit_s), zygote=zygote)
    return {"seconds": round(time.monotonic() - began, 2), "valid": seen.valid,
            "correct": seen.correct, "reason": seen.rejected_reason,
            "outcomes": [row.outcome for row in seen.rows]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limits", type=float, nargs="+", default=[10.0, 20.0])
    parser.add_argument("--out", type=Path,
                        default=machine.RESULTS / f"faults-{time.strftime('%Y-%m-%d')}.jsonl")
    args = parser.parse_args()
    zygote = machine.zygote(machine.card())
    keep = machine.JsonLines(args.out).keep
    keep("machine", **machine.describe(), versions=machine.gpu_versions())
    with tempfile.TemporaryDirectory(prefix="kopt-bench-") as name:
        folder = Path(name)
        keep("first", **verdict(folder / "first", SOURCE + "# first\n", None, zygote))
        for limit_s in args.limits:
            for fault, source in (("endless", ENDLESS), ("illegal", ILLEGAL)):
                case = f"{fault}-{limit_s:g}"
                found = verdict(folder / case, source, limit_s, zygote)
                after = verdict(folder / f"after-{case}", SOURCE + f"# {case}\n", None, zygote)
                keep(fault, limit_s=limit_s, within=found["seconds"] <= limit_s + MOST_EXTRA_S,
                     **found, after=after)
    zygote.close()


if __name__ == "__main__":
    main()
