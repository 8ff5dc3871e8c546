"""The kernels of a benchmark: where its GPU time goes, in verdicts, as bottlenecks, on record."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.planning import bottlenecks
from harness.benchmark.kernel_time import cupti
from harness.benchmark.kernel_time.profile import KernelLaunches, kernel_shares
from harness.devices import inventory
from harness.devices.device import Device
from harness.verdict import KernelShare, Row, Verdict
from tests.support.benchmarks import kernel_time_case as case
from tests.support.benchmarks.benchmark_case import BENCH, TARGET, judge
from tests.support.benchmarks.confirm_case import (
    DRIVER,
    FAKE_CARD,
    KERNELS_BEFORE,
    TRACED,
    kernel_source,
)
from tests.support.dashboards import samples


@pytest.fixture(autouse=True)
def stand_in(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = str(case.cupti(tmp_path_factory.mktemp("cupti")))
    monkeypatch.setattr(cupti, "cupti_libraries", lambda python: [ours])


def baseline(folder: Path, more: str = "", device: Device = FAKE_CARD) -> Verdict:
    """Return the verdict of a benchmark against itself."""
    text = kernel_source(100.0, KERNELS_BEFORE, more)
    return judge(folder, text, incumbent=text, files={"bench.py": BENCH + DRIVER}, device=device,
                 always_time=True)


def trace(verdict: Verdict) -> list[str]:
    return [entry.detail for entry in verdict.evidence if entry.kind == "trace"]


def test_baseline_reports_its_kernels(tmp_path: Path) -> None:
    judged = baseline(tmp_path)
    assert [(kernel.name, kernel.launches, kernel.mean_us) for kernel in judged.kernels] == [
        ("norm", 500, 30.0), ("flush", 500, 20.0)]
    assert [kernel.share for kernel in judged.kernels] == [pytest.approx(0.6), pytest.approx(0.4)]
    assert trace(judged) == ["GPU time of a run goes to norm 60% (500 launches of 30 us), "
                             "flush 40% (500 launches of 20 us), by CUPTI"]


def test_confirmed_gain_lists_the_candidates_kernels(tmp_path: Path) -> None:
    after = case.launched(("norm", 500, 20_000), ("flush", 500, 20_100))
    judged = judge(
        tmp_path,
        kernel_source(70.0, after),
        incumbent=kernel_source(100.0, KERNELS_BEFORE),
        files={"bench.py": BENCH + DRIVER},
        device=FAKE_CARD,
    )
    assert [kernel.name for kernel in judged.kernels] == ["flush", "norm"] and len(
        trace(judged)
    ) == 1


@pytest.mark.slow
def test_failed_trace_keeps_the_baseline_verdict(tmp_path: Path) -> None:
    judged = baseline(tmp_path, f"{TRACED}raise SystemExit('seen')\n")
    assert judged.valid and judged.correct and judged.latency_us and not judged.kernels
    assert trace(judged) == ["no trace of the kernels: the candidate: exited with 1: seen"]


@pytest.mark.slow
def test_cpu_verdict_has_no_trace(tmp_path: Path) -> None:
    judged = baseline(tmp_path, device=inventory.find("cpu"))
    assert judged.valid and not judged.kernels and not trace(judged)


def test_longest_kernels_are_listed_first() -> None:
    profile = {f"k{n}": KernelLaunches(launches=2, total_ns=n * 1000, least_ns=1, blocks=2)
               for n in range(1, 12)}
    shares = kernel_shares(profile)
    assert [share.name for share in shares] == [f"k{n}" for n in range(11, 3, -1)]
    assert shares[0].share == pytest.approx(11 / 66) and shares[0].mean_us == 5.5


def test_own_kernels_are_the_first_bottlenecks() -> None:
    best = samples.verdict(
        rows=(Row(config_class="a", correct=True, latency_us=10.0),
              Row(config_class="b", correct=True, latency_us=30.0)),
        kernels=tuple(KernelShare(name=name, launches=10, mean_us=1.0, share=share)
                      for name, share in (("flush", 0.5), ("gemm", 0.3), ("", 0.1), ("copy", 0.06),
                                          ("tail", 0.04))))
    source = "def gemm(x): ...\ndef copy(x): ...\ndef tail(x): ...\n"
    found = bottlenecks.ranked("c", 2, bottlenecks.of_shares(TARGET, (), best, source))
    leads = [lead.bottleneck for lead in found]
    assert [
        (lead.id, lead.limiter, lead.config_class, round(lead.value or 0)) for lead in leads
    ] == [
        ("b2.1", "time in gemm", "", 30),
        ("b2.2", "time in copy", "", 6),
        ("b2.3", "unexplained time", "b", 75),
        ("b2.4", "unexplained time", "a", 25),
    ]


@pytest.mark.parametrize(("kernel", "expected"), [
    ("decode_kernel", True), ("decode", False), ("void decode_kernel<float, 4>(float*)", True),
    ("ops::decode_kernel(int)", True), ("_Z13decode_kernelPfi", True), ("", False),
    ("fill_kernel", False), ("void at::native::vectorized_elementwise_kernel<4>(int)", False)])
def test_kernel_is_found_in_its_source(kernel: str, expected: bool) -> None:
    source = "__global__ void decode_kernel(float *x, int n) {}"
    assert bottlenecks.is_in(source, kernel) is expected
