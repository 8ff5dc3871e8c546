"""Kernel time of each row decides where the benchmark can run on one row alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.history.regression import points
from engine.judge.judge import Policy, rule
from harness.benchmark.kernel_time import cupti, gain, rocprof
from harness.benchmark.kernel_time.gain import call_times_us
from harness.benchmark.kernel_time.profile import (
    KernelLaunches,
    KernelProfile,
    KernelTimeUnavailable,
)
from harness.verdict import Row, Verdict
from tests.support.benchmarks import benchmark_case, kernel_time_case, rocprof_case
from tests.support.benchmarks.confirm_case import DRIVER, FAKE_CARD

BENCH = """\
import csv, random, sys
import kernel

only = sys.argv[sys.argv.index("--m") + 1] if "--m" in sys.argv else ""
with open("bench.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["m", "err", "us"])
    for m in ("64", "256"):
        if only in ("", m) or kernel.ALL_ROWS:
            writer.writerow([m, 0, kernel.COST[m] * random.uniform(0.999, 1.001)])
with open("trace.csv", "w") as file:
    file.write(kernel.TRACE[only])
"""
TARGET = replace(benchmark_case.TARGET, row_command="python bench.py --m {m}", metrics=(
    replace(benchmark_case.TARGET.metrics[0], name="us"),))
CARD = replace(FAKE_CARD, id="hip:0", kind="amd")


def judged(folder: Path, cost: tuple[float, float], kernel_time: tuple[float, float], *,
           all_rows: bool = False, row_command: str = TARGET.row_command,
           **settings: Any) -> Verdict:
    """Judge a candidate with these reported costs and factors of kernel time for m=64 and m=256."""
    def source(cost: tuple[float, float], factors: tuple[float, float]) -> str:
        traces = {m: rocprof_case.scaled(factor)
                  for m, factor in zip(("64", "256"), factors, strict=True)}
        return f"COST = {dict(zip(('64', '256'), cost, strict=True))}\nALL_ROWS = {all_rows}\n" \
            f"TRACE = {traces | {'': rocprof_case.scaled(sum(factors) / 2)}}\n"

    return benchmark_case.judge(
        folder, source(cost, kernel_time), incumbent=source((100.0, 100.0), (1.0, 1.0)),
        files={"bench.py": BENCH}, device=CARD, wanted=replace(TARGET, row_command=row_command),
        **settings)


@pytest.fixture(autouse=True)
def profiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = rocprof_case.install(tmp_path / "bin")
    monkeypatch.setattr(rocprof, "find_program", lambda: program)


def rows_of(verdict: Verdict) -> dict[str, Row]:
    return {row.config_class: row for row in verdict.rows}


def test_kernel_time_of_each_row_is_the_score(tmp_path: Path) -> None:
    verdict = judged(tmp_path, (50.0, 50.0), (0.7, 0.8))
    assert verdict.by_kernel_time and not verdict.audit
    assert verdict.speedup == pytest.approx((1 / 0.7 / 0.8) ** 0.5, rel=0.01)
    small = rows_of(verdict)["m=64"]
    assert (small.latency_us, small.incumbent_us) == (
        pytest.approx(22.44, rel=1e-3), pytest.approx(32.05, rel=1e-3))
    assert (small.other_us, small.incumbent_other_us) == (
        pytest.approx(50, rel=0.01), pytest.approx(100, rel=0.01))
    assert "latency_us is GPU kernel time by rocprofv3; other_us is us, as the benchmark reports " \
        "it" in verdict.notes
    assert "GPU kernel time of 2 rows, each in its own run, 3 pairs, by rocprofv3" in [
        entry.detail for entry in verdict.evidence]
    assert rule(verdict, Policy(approval="auto")).kind == "keep"


def test_row_without_a_countable_run_is_measured_once_more(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an idle card, kernels that prepare a run may take longer than the calls' tolerance."""
    counted = gain.call_times_us
    measured: list[KernelProfile] = []

    def times(before: KernelProfile, after: KernelProfile) -> tuple[float, float]:
        measured.append(after)
        if len(measured) == 1:
            raise KernelTimeUnavailable("its rarely launched kernels take longer")
        return counted(before, after)

    monkeypatch.setattr(gain, "call_times_us", times)
    assert judged(tmp_path, (50.0, 50.0), (0.7, 0.8)).by_kernel_time
    assert len(measured) == 2 * 3 + 1


@pytest.mark.slow
def test_rows_are_measured_by_cupti_in_the_same_sequence(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test on a real card is in test_kernel_time_gpu.py, run by `make test-gpu`."""
    library = str(kernel_time_case.cupti(tmp_path))
    monkeypatch.setattr(cupti, "cupti_libraries", lambda python: [library])
    def source(cost: float, ns: int) -> str:
        runs = {m: kernel_time_case.launched(("norm", 100, ns * times), ("fill", 2, 900))
                for m, times in (("64", 1), ("256", 4))}
        return f"COST = {dict.fromkeys(runs, cost)}\nALL_ROWS = False\nLAUNCHED = {runs}\n"

    bench = BENCH.partition('with open("trace')[0] + DRIVER.replace(
        "kernel.LAUNCHED", "kernel.LAUNCHED.get(only, '')")
    verdict = benchmark_case.judge(
        tmp_path / "v", source(50.0, 7000), incumbent=source(100.0, 10_000), device=FAKE_CARD,
        files={"bench.py": bench}, wanted=TARGET)
    assert verdict.by_kernel_time and not verdict.audit
    assert [(row.latency_us, row.incumbent_us) for row in verdict.rows] == [
        (pytest.approx(7), pytest.approx(10)), (pytest.approx(28), pytest.approx(40))]


@pytest.mark.slow
def test_class_whose_kernel_time_rose_is_named_although_its_time_fell(tmp_path: Path) -> None:
    verdict = judged(tmp_path, (50.0, 50.0), (0.5, 1.2))
    risen = rows_of(verdict)["m=256"]
    assert risen.outcome == "slower" and risen.note.startswith(
        "its kernel time rose, although the benchmark reports ")
    ruling = rule(verdict, Policy(approval="auto"))
    assert ruling.kind == "reject" and "m=256 20.0% slower" in ruling.reason
    assert points(verdict.rows)[0].startswith("m=256 20.0% slower, its kernel time rose, although")


@pytest.mark.slow
def test_gain_that_kernel_time_does_not_show_is_a_tie(tmp_path: Path) -> None:
    verdict = judged(tmp_path, (50.0, 50.0), (1.0, 1.0))
    assert rule(verdict, Policy(approval="auto")).kind == "tie"
    assert all(row.note.startswith("its kernel time did not fall, although the benchmark reports ")
               for row in verdict.rows)


def test_regression_shows_kernel_time_beside_reported_time(tmp_path: Path) -> None:
    verdict = judged(tmp_path, (100.0, 150.0), (1.0, 1.4))
    slower = rows_of(verdict)["m=256"]
    assert not verdict.by_kernel_time and slower.latency_us == pytest.approx(150, rel=0.01)
    assert (slower.other_us, slower.incumbent_other_us) == (
        pytest.approx(44.87, rel=1e-3), pytest.approx(32.05, rel=1e-3))


@pytest.mark.slow
@pytest.mark.parametrize(("changed", "why"), [
    ({"row_command": ""}, "without target.row_command its launches cannot be attributed to rows"),
    ({"row_command": "python bench.py --m {k}"},
     "{k} in target.row_command is none of the config columns m"),
    ({"all_rows": True}, "m=64: has 2 rows, row_command's row has 1; new: m=256")])
def test_unattributable_kernel_time_is_noted_with_its_reason(changed: dict[str, Any], why: str,
                                                             tmp_path: Path) -> None:
    verdict = judged(tmp_path, (50.0, 50.0), (0.5, 0.5), **changed)
    assert verdict.notes[-1] == f"kernel time of the whole run only: {why}"
    assert not verdict.by_kernel_time and not verdict.audit
    assert {row.other_us for row in verdict.rows} == {None}


def kernels(**launched: tuple[int, int]) -> dict[str, KernelLaunches]:
    return {name: KernelLaunches(launches=count, total_ns=count * ns, least_ns=ns, blocks=count)
            for name, (count, ns) in launched.items()}


@pytest.mark.parametrize(("before", "after", "times"), [
    (kernels(a=(100, 3000)), kernels(a=(100, 2000)), (3.0, 2.0)),
    (kernels(a=(100, 3000), b=(100, 1000)), kernels(ab=(101, 3000)), (4.0, 3.0)),
    (kernels(a=(100, 3000), fill=(2, 9000)), kernels(a=(100, 2000), fill=(2, 9000)), (3.0, 2.0)),
    (kernels(a=(100, 3000), flush=(100, 10)), kernels(a=(200, 1000), flush=(100, 10)),
     (3.01, 2.01)),
    (kernels(a=(100, 3000), flush=(100, 500)), kernels(a=(150, 2000), flush=(150, 502)),
     (3.5, 2.502))])
def test_calls_are_counted_by_launches(before: dict[str, KernelLaunches],
                                       after: dict[str, KernelLaunches],
                                       times: tuple[float, float]) -> None:
    assert call_times_us(before, after) == pytest.approx(times)


@pytest.mark.parametrize(("after", "why"), [
    (kernels(a=(200, 1000)), "calls cannot be counted: 100 launches became 200"),
    (kernels(a=(100, 10), once=(1, 200_000)), "may do the work of the calls")])
def test_uncountable_calls_have_no_kernel_time(after: dict[str, KernelLaunches],
                                               why: str) -> None:
    with pytest.raises(KernelTimeUnavailable, match=why):
        call_times_us(kernels(a=(100, 3000)), after)
