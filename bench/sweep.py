"""Measure how long `loop` takes to rank a whole space, compared with a serial sweep.

    python bench/sweep.py [--out FILE.jsonl] [--limit 128]

Both run on the same GPU. The space: 128 configurations of a bfloat16 product of 4096 x 4096
matrices. `loop` is a fresh `python -m harness` with the request of `kopt loop`; its seconds run
from its start to its last trial. `serial` compiles each configuration and calls
triton.testing.do_bench, in one process, with an empty cache. `final` is a verdict on the loop's
winner against the serial one's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import machine

from harness.evaluate.evaluate import evaluate
from harness.formats.json_codec import to_json
from harness.requests import LoopRequest
from harness.search.space import knobs
from harness.search.trials.trials import SearchJob
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass, Target
from harness.timing.plan import Plan

SIZE = 4096
CHOICES = {"BLOCK_M": (64, 128, 256), "BLOCK_N": (64, 128, 256), "BLOCK_K": (32, 64, 128),
           "NUM_WARPS": (4, 8), "NUM_STAGES": (2, 3, 4, 5)}
SOURCE = '''import triton
import triton.language as tl

BLOCK_M = 64  # kopt: knob BLOCK_M in [64, 128, 256]
BLOCK_N = 64  # kopt: knob BLOCK_N in [64, 128, 256]
BLOCK_K = 32  # kopt: knob BLOCK_K in [32, 64, 128]
NUM_WARPS = 4  # kopt: knob NUM_WARPS in [4, 8]
NUM_STAGES = 2  # kopt: knob NUM_STAGES in [2, 3, 4, 5]
# kopt: require 2 * (BLOCK_M + BLOCK_N) * BLOCK_K * NUM_STAGES <= 232448
# kopt: require BLOCK_M * BLOCK_N >= NUM_WARPS * 32 * 32
# kopt: require BLOCK_M * BLOCK_N <= NUM_WARPS * 32 * 128
GROUP = 8


@triton.jit
def matmul_kernel(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                  GROUP: tl.constexpr):
    tile = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    first = tile // (GROUP * tiles_n) * GROUP
    height = min(tiles_m - first, GROUP)
    at_m = (first + tile % (GROUP * tiles_n) % height) * BM + tl.arange(0, BM)
    at_n = tile % (GROUP * tiles_n) // height * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK)
    left = a + (at_m % m)[:, None] * k + at_k[None, :]
    right = b + at_k[:, None] * n + (at_n % n)[None, :]
    sums = tl.zeros((BM, BN), tl.float32)
    for step in range(0, k, BK):
        sums = tl.dot(tl.load(left, at_k[None, :] < k - step, 0.0),
                      tl.load(right, at_k[:, None] < k - step, 0.0), sums)
        left += BK
        right += BK * n
    tl.store(c + at_m[:, None] * n + at_n[None, :], sums.to(tl.bfloat16),
             (at_m < m)[:, None] & (at_n < n)[None, :])


def matmul(a, b, c):
    m, k = a.shape
    n = b.shape[1]
    matmul_kernel[(triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N),)](
        a, b, c, m, n, k, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, num_warps=NUM_WARPS,
        num_stages=NUM_STAGES)
'''
REFERENCE = "def matmul(a, b):\n    return a @ b\n"
SERIAL = '''import itertools, json, sys, time, types
import torch, triton
configs = json.load(open(sys.argv[1]))
began = time.monotonic()
a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
c = torch.empty_like(a)
for number, (name, path) in enumerate(configs):
    module = types.ModuleType(f"k{number}")
    module.__file__ = path
    sys.modules[module.__name__] = module
    exec(compile(open(path).read(), path, "exec"), module.__dict__)
    try:
        us = triton.testing.do_bench(lambda: module.matmul(a, b, c), quantiles=[0.5]) * 1e3
    except Exception:
        us = None
    print(json.dumps({"config": name, "us": us, "at": time.monotonic() - began}), flush=True)
'''


def target() -> Target:
    return Target(
        op="matmul", language="triton", source="kernel.py", entry="matmul",
        reference="reference.py:matmul", returns=False, flops="2*m*n*k",
        args=(Arg(name="a", dtype="bfloat16", shape=("m", "k")),
              Arg(name="b", dtype="bfloat16", shape=("k", "n")),
              Arg(name="c", dtype="bfloat16", shape=("m", "n"), role="output")),
        classes=(ConfigClass(name="square", shape={"m": SIZE, "n": SIZE, "k": SIZE}),))


def configs() -> list[dict[str, int]]:
    every = (dict(zip(CHOICES, values, strict=True)) for values in product(*CHOICES.values()))
    found = knobs.find(SOURCE, language="triton")
    requirements = knobs.requirements(SOURCE, found, "kernel.py")
    return [config for config in every if not knobs.check(found, config, requirements).refusal]


def write(folder: Path, source: str = SOURCE) -> str:
    folder.mkdir(parents=True)
    (folder / "kernel.py").write_text(source)
    (folder / "reference.py").write_text(REFERENCE)
    return str(folder)


def run_loop(folder: Path, device: str, budget: int) -> dict[str, Any]:
    """Run a loop; return its best configuration, and each trial with its time of arrival."""
    tree = write(folder / "tree")
    request = folder / "request.json"
    request.write_bytes(to_json(LoopRequest(
        target=target(), device=device, settings=Settings(scratch=str(folder / "scratch")),
        job=SearchJob(tree=tree, reference=tree, budget=budget))))
    began, trials, last = time.monotonic(), [], {}
    process = subprocess.Popen([sys.executable, "-m", "harness", str(request)], text=True,
                               stdout=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        last = json.loads(line)
        if "trial" in last:
            trials.append((time.monotonic() - began, last["trial"]))
    process.wait()
    found = last.get("result") or {"error": last}
    return {"seconds": trials[-1][0] if trials else None, "trials": len(trials),
            "first_trial_s": trials[0][0] if trials else None, "best": found.get("best"),
            "notes": found.get("notes", found), "rows": [
                {"at": at, "config": trial["config"], "us": trial.get("latency_us"),
                 "tag": trial["tag"], "reason": trial.get("reason", ""),
                 "seconds": trial.get("wall_s")} for at, trial in trials]}


def run_serial(folder: Path, chosen: list[dict[str, int]]) -> dict[str, Any]:
    listed = []
    for number, config in enumerate(chosen):
        path = folder / f"kernel_{number}.py"
        path.write_text(knobs.apply(SOURCE, config, language="triton"))
        listed.append((config, str(path)))
    (folder / "configs.json").write_text(json.dumps(listed))
    (folder / "serial.py").write_text(SERIAL)
    done = subprocess.run([sys.executable, str(folder / "serial.py"), str(folder / "configs.json")],
                          capture_output=True, text=True, check=True, timeout=300,
                          env={**os.environ, "TRITON_CACHE_DIR": str(folder / "cache")})
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    best = min((row for row in rows if row["us"]), key=lambda row: row["us"])
    return {"seconds": rows[-1]["at"], "configs": len(rows), "best": best["config"],
            "best_us": best["us"], "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--limit", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--out", type=Path,
                        default=machine.RESULTS / f"sweep-{time.strftime('%Y-%m-%d')}.jsonl")
    args = parser.parse_args()
    device = machine.card()
    keep = machine.JsonLines(args.out, printed=900).keep
    keep("machine", **machine.describe(), versions=machine.gpu_versions())
    chosen = configs()[:args.limit]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(args.repeat):
            ours = run_loop(folder / f"loop-{number}", device.id, len(chosen))
            keep("loop", **ours)
        serial_folder = folder / "serial"
        serial_folder.mkdir()
        serial = run_serial(serial_folder, chosen)
        keep("serial", **serial)
        began = time.monotonic()
        verdict = evaluate(target(), Trees(
            candidate=write(folder / "ours", knobs.apply(
                SOURCE, ours["best"], language="triton") + "# the loop's\n"),
            incumbent=write(folder / "theirs", knobs.apply(
                SOURCE, serial["best"], language="triton")),
            reference=write(folder / "reference")), device,
            Settings(scratch=str(folder / "verdict"), plan=Plan(), always_time=True))
        keep("final", same=ours["best"] == serial["best"], speedup=verdict.speedup,
             low=verdict.speedup_low, high=verdict.speedup_high, valid=verdict.valid,
             correct=verdict.correct, reason=verdict.rejected_reason,
             seconds=time.monotonic() - began, times_faster=serial["seconds"] / ours["seconds"])


if __name__ == "__main__":
    main()
