"""Reported gains against the kernel time of a real card; skipped where there is no NVIDIA GPU.

Run with `make test-gpu`, or with nothing but torch, triton, numpy, pandas, PyYAML and pytest:
PYTHONPATH=. python3 -m pytest -c tests/gpu.ini --rootdir=. -m gpu
tests/harness/benchmark/test_kernel_time_gpu.py
"""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.kernel_time import cupti as kernel_time
from harness.benchmark.kernel_time.profile import KernelTimeUnavailable
from harness.benchmark.runs.result_table import BenchmarkFault
from harness.benchmark.runs.workdir import CommandEnvironment, WorkingCopy
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric
from harness.benchmark.spec.validate import check
from harness.benchmark.verdict.benchmark_verdict import evaluate
from harness.benchmark.verdict.confirm_gain import UNCONFIRMED
from harness.devices import inventory
from harness.devices.device import Device
from harness.isolation import guard
from harness.settings import Settings, Trees
from harness.timing.plan import Plan
from harness.verdict import Verdict

pytestmark = pytest.mark.gpu
WARM, TIMED = 20, 100
KERNEL = """\
import torch
import triton
import triton.language as tl

@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

def double(x, out):
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
"""
FASTER, SLOWER = KERNEL.replace("64", "1024"), KERNEL.replace("64", "32")
FORGED = """
real = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, end: real(self, end) * 0.25
"""
EVENTS = f"""\
import csv, statistics
import torch
from kernel import double

def timed(call):
    for _ in range({WARM}):
        call()
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in "ab"] for _ in range({TIMED})]
    for begin, end in pairs:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in pairs)
"""
DO_BENCH = """\
import csv
import torch
from triton.testing import do_bench
from kernel import double

def timed(call):
    return do_bench(call, warmup=20, rep=100)
"""
TABLE = """
import sys
rows = []
for n in [int(n) for n in sys.argv[1:]] or [1 << 23, 1 << 24]:
    x = torch.randn(n, device="cuda")
    out = torch.empty_like(x)
    ms = timed(lambda: double(x, out))
    rows.append({"n": n, "err": float((out - 2 * x).abs().max()), "us": ms * 1000})
with open("bench.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
"""
BENCHES = {"events": EVENTS + TABLE, "do_bench": DO_BENCH + TABLE}
PROFILED = EVENTS + """
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
    x = torch.randn(1 << 20, device="cuda")
    for _ in range(10):
        double(x, x)
    torch.cuda.synchronize()
""" + TABLE
BENCHES["profiled"] = PROFILED
TIMERS = ("events", "do_bench")
TARGET = CommandTarget(op="double", command="python3 bench.py", csv="bench.csv",
                       check=CheckColumn(column="err", rule="== 0"), metrics=(Metric(name="us"),),
                       timeout_s=240.0)


def card() -> Device:
    cards = [d for d in inventory.inventory() if d.kind == "nvidia" and not d.unusable]
    if not cards:
        pytest.skip("kernel time is asked of NVIDIA's cards alone")
    return cards[0]


def tree(folder: Path, kernel: str, bench: str) -> str:
    folder.mkdir()
    (folder / "kernel.py").write_text(kernel)
    (folder / "bench.py").write_text(BENCHES[bench])
    return str(folder)


def judged(folder: Path, candidate: str, bench: str, target: CommandTarget = TARGET,
           **fields: Any) -> Verdict:
    check(target)
    before = tree(folder / "incumbent", KERNEL, bench)
    trees = Trees(candidate=tree(folder / "candidate", candidate, bench), incumbent=before,
                  reference=before)
    return evaluate(target, trees, card(), Settings(
        scratch=str(folder / "scratch"), plan=Plan(looks=(3,), alpha=0.05), **fields))


def verdict_text(verdict: Verdict) -> str:
    """Return the details of a verdict, for the message of a failed assertion."""
    return "\n".join(
        [
            f"valid {verdict.valid}, reason {verdict.rejected_reason}, speedup {verdict.speedup}",
            *(f"row: {row}" for row in verdict.rows),
            *(f"audit: {finding}" for finding in verdict.audit),
            *(f"evidence: {entry.kind}: {entry.detail}" for entry in verdict.evidence),
            *(f"note: {note}" for note in verdict.notes),
            f"card: {card()}",
            *(f"CUPTI: {path}" for path in kernel_time.cupti_libraries()),
        ]
    )


@pytest.mark.parametrize("confined", [False, True])
def test_cupti_sees_every_launch(confined: bool, tmp_path: Path) -> None:
    if confined and (reason := guard.confinement_problem()):
        pytest.skip(reason)
    place = CommandEnvironment(env=card().visible_env, confined=confined)
    side = WorkingCopy(
        "side", Path(tree(tmp_path / "tree", KERNEL, "events")), tmp_path / "side", place
    )
    try:
        side.run(TARGET.command)
    except BenchmarkFault as fault:
        if confined:
            pytest.skip(f"the card does not work inside namespaces: {fault}")
        raise
    cupti = kernel_time.cupti_libraries()
    try:
        outcome, profile = kernel_time.CuptiProfiler(cupti).observe(
            side, partial(side.run, TARGET.command))
    except KernelTimeUnavailable as unseen:
        pytest.fail(f"{unseen.what}; CUPTI is looked for in {cupti}")
    listed = "\n".join(f"{name}: {kernel}" for name, kernel in sorted(
        profile.items(), key=lambda item: -item[1].total_ns))
    print(listed, outcome.stderr.decode(errors="replace"), sep="\n")
    assert "double_kernel" in profile, listed
    ours = profile["double_kernel"]
    assert ours.launches == 2 * (WARM + TIMED), listed
    assert ours.blocks == (WARM + TIMED) * ((1 << 23) + (1 << 24)) // 64, listed
    with open(side.tree / "bench.csv", newline="") as file:
        reported = [float(row["us"]) for row in csv.DictReader(file)]
    assert ours.mean_ns / 1e3 == pytest.approx(sum(reported) / 2, rel=0.3), (listed, reported)
    assert ours.least_ns / 1e3 < min(reported) * 1.05, (listed, reported)


def test_self_profiling_benchmark_still_works(tmp_path: Path) -> None:
    side = WorkingCopy("side", Path(tree(tmp_path / "tree", KERNEL, "profiled")), tmp_path / "side",
                CommandEnvironment(env=card().visible_env, confined=False))
    try:  # the second of two profilers may get the records
        _, profile = kernel_time.CuptiProfiler(kernel_time.cupti_libraries()).observe(side,
                                          partial(side.run, TARGET.command))
        print(profile)
    except KernelTimeUnavailable as unseen:
        print(unseen.what)
    assert (side.tree / "bench.csv").exists()


def test_baseline_reports_its_kernels(tmp_path: Path) -> None:
    verdict = judged(tmp_path, KERNEL, "events", always_time=True)
    [ours] = [kernel for kernel in verdict.kernels if kernel.name == "double_kernel"]
    assert ours.launches == 2 * (WARM + TIMED) and ours.share > 0.3, verdict_text(verdict)
    assert sum(kernel.share for kernel in verdict.kernels) <= 1 + 1e-9
    reported = sum(row.latency_us or 0.0 for row in verdict.rows) / 2
    assert ours.mean_us == pytest.approx(reported, rel=0.3), verdict_text(verdict)


@pytest.mark.parametrize("bench", TIMERS)
def test_real_gain_is_confirmed(bench: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, FASTER, bench)
    assert verdict.valid and (verdict.speedup or 0) > 1.2, verdict_text(verdict)
    assert not any(finding.detail.startswith(UNCONFIRMED.detail) for finding in verdict.audit), \
        verdict_text(verdict)
    assert any(entry.kind == "kernel-time" for entry in verdict.evidence), verdict_text(verdict)
    print(verdict_text(verdict))


@pytest.mark.parametrize("bench", TIMERS)
def test_kernel_time_of_each_row_is_the_score(bench: str, tmp_path: Path) -> None:
    """The same sequence runs without a GPU in test_kernel_rows.py."""
    verdict = judged(tmp_path, FASTER, bench,
                     replace(TARGET, row_command="python3 bench.py {n}"))
    assert verdict.by_kernel_time and not [
        finding for finding in verdict.audit if finding.severity != "note"], verdict_text(verdict)
    for row in verdict.rows:
        assert row.outcome == "faster" and row.other_us, verdict_text(verdict)
        if bench == "events":  # a launch may take longer than the candidate's kernel
            assert row.incumbent_us == pytest.approx(row.incumbent_other_us, rel=0.3), \
                verdict_text(verdict)
            assert (row.latency_us or 0.0) < row.other_us * 1.05, verdict_text(verdict)
    print(verdict_text(verdict))


@pytest.mark.parametrize("bench", TIMERS)
def test_forged_gain_of_a_slower_kernel_is_flagged(bench: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, SLOWER + FORGED, bench)
    assert verdict.valid and any(finding.rule == "kernel-time" for finding in verdict.audit), \
        verdict_text(verdict)
    print(verdict_text(verdict))


@pytest.mark.parametrize("bench", TIMERS)
def test_forged_gain_of_the_same_kernel_is_flagged(bench: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, KERNEL + FORGED, bench)
    assert verdict.valid and (verdict.speedup or 0) > 1.5, verdict_text(verdict)
    assert any(finding.rule == "kernel-time"  # it rose, if more calls were of the large row
               or (finding.detail.startswith(UNCONFIRMED.detail)
                   and "kernel time" in finding.detail)
               for finding in verdict.audit), verdict_text(verdict)
    print(verdict_text(verdict))
