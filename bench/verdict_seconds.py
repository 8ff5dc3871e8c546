"""Measure how many seconds a verdict takes on a GPU, in total and by stage.

    python bench/verdict_seconds.py [--kernel softmax] [--repeat 10] [--out FILE.jsonl]

A SwiGLU in bfloat16 with classes of 8192x14336, 1024x4096 and 4097x5000, or examples/softmax_triton
with its five classes. `fresh` verdicts find no running processes, as those of `kopt evaluate`;
`campaign` verdicts share a zygote, a scratch folder and an oracle; the first of them is not in the
median.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import machine
import timeline

from harness.evaluate.evaluate import evaluate
from harness.isolation.zygote_client import Zygote
from harness.runners.kept_oracle import OracleShelf
from harness.settings import Settings, Trees
from harness.tasks import task_file
from harness.tasks.target import Arg, ConfigClass, Target
from harness.timing.plan import Plan
from harness.verdict import Verdict

SOURCE = '''
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(gate, up, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    g = tl.load(gate + at, mask=inside).to(tl.float32)
    u = tl.load(up + at, mask=inside).to(tl.float32)
    tl.store(out + at, (g / (1.0 + tl.exp(-g)) * u).to(tl.bfloat16), mask=inside)


def swiglu(gate, up, out):
    n = gate.numel()
    _kernel[(triton.cdiv(n, BLOCK_SIZE),)](gate, up, out, n, BLOCK=BLOCK_SIZE, num_warps=WARPS)
'''
REFERENCE = "def swiglu(gate, up):\n    return gate / (1 + (-gate).exp()) * up\n"
SIZES = ((8192, 14336), (1024, 4096), (4097, 5000))
SOFTMAX = Path(__file__).parent.parent / "examples" / "softmax_triton"


def target(name: str) -> Target:
    if name == "softmax":
        return task_file.load(SOFTMAX / "task.yaml")
    shape = ("rows", "columns")
    return Target(
        op="swiglu", language="triton", source="swiglu.py", entry="swiglu",
        reference="reference.py:swiglu", returns=False,
        args=(Arg(name="gate", dtype="bfloat16", shape=shape),
              Arg(name="up", dtype="bfloat16", shape=shape),
              Arg(name="out", dtype="bfloat16", shape=shape, role="output")),
        classes=tuple(ConfigClass(name=f"{rows}x{columns}",
                                  shape={"rows": rows, "columns": columns})
                      for rows, columns in SIZES))


def write(folder: Path, name: str, *, better: bool) -> str:
    """Write a kernel; return its folder. `better` settings are at least as fast as the others."""
    if name == "softmax":
        shutil.copytree(SOFTMAX, folder)
        source = (folder / "kernel.py").read_text()
        for knob, value in (("VARIANT", "whole"), ("BLOCK", 8192 if better else 4096),
                            ("PER_THREAD", 32 if better else 16)):
            source = re.sub(rf"^{knob} = \S+", f"{knob} = {value}", source, flags=re.MULTILINE)
        (folder / "kernel.py").write_text(source)
        return str(folder)
    folder.mkdir()
    settings = "512, 4" if better else "128, 4"
    (folder / "swiglu.py").write_text(f"BLOCK_SIZE, WARPS = {settings}\n{SOURCE}")
    (folder / "reference.py").write_text(REFERENCE)
    return str(folder)


def judged(name: str, folder: Path, scratch: Path, number: int, zygote: Zygote | None,
           shelf: OracleShelf | None, device: Any) -> tuple[float, Verdict, dict[str, float]]:
    """Make a verdict; return its seconds, the verdict, and the seconds of each stage."""
    candidate = write(folder / f"candidate-{number}", name, better=True)
    incumbent = folder / "incumbent"
    if not incumbent.exists():
        write(incumbent, name, better=False)
    stages: dict[str, float] = defaultdict(float)
    began = at = time.monotonic()
    stage = "begin"

    def on(entered: str, detail: str, _: float | None) -> None:
        nonlocal at, stage
        stages[stage] += time.monotonic() - at
        at, stage = time.monotonic(), entered

    verdict = evaluate(target(name), Trees(candidate=candidate, incumbent=str(incumbent),
                                           reference=str(incumbent)), device,
                       Settings(scratch=str(scratch), plan=Plan(alpha=0.001)), progress=on,
                       zygote=zygote, shelf=shelf)
    stages[stage] += time.monotonic() - at
    return time.monotonic() - began, verdict, dict(stages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--kernel", choices=("swiglu", "softmax"), default="swiglu")
    parser.add_argument("--kinds", default="fresh,campaign")
    parser.add_argument("--log", action="store_true", help="print each request, see timeline.py")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = machine.card()
    spent = timeline.RequestLog(prints=args.log)
    lines: list[dict[str, Any]] = [{"machine": machine.describe()}]
    for kind in args.kinds.split(","):
        with tempfile.TemporaryDirectory(prefix="kopt-bench-") as temporary:
            folder = Path(temporary)
            zygote, shelf = (machine.zygote(device), OracleShelf()) if kind == "campaign" \
                else (None, None)
            for number in range(args.repeat + (kind == "campaign")):
                spent.seconds.clear()
                scratch = folder / (f"scratch-{number}" if kind == "fresh" else "scratch")
                seconds, verdict, stages = judged(args.kernel, folder, scratch, number, zygote,
                                                  shelf, device)
                line = {"kind": kind, "number": number, "seconds": round(seconds, 3),
                        "reason": verdict.rejected_reason,
                        "rows": [(row.config_class, row.outcome, row.pairs, row.latency_us,
                                  row.incumbent_us) for row in verdict.rows],
                        "stages": {k: round(v, 3) for k, v in stages.items()},
                        "requests": {k: round(v, 3) for k, v in spent.seconds.items()},
                        "evidence": [f"{e.kind}: {e.detail}" for e in verdict.evidence]
                        if number == 0 else [],
                        "findings": [f"{f.rule}: {f.detail}" for f in verdict.audit],
                        "notes": list(verdict.notes)}
                lines.append(line)
                print(json.dumps(line), flush=True)
            if zygote is not None and shelf is not None:
                shelf.close()
                zygote.close()
        times = [line["seconds"] for line in lines if line.get("kind") == kind]
        print(kind, "median", median(times[kind == "campaign":]), "s of", len(times), flush=True)
    if args.out:
        args.out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
