"""Kernel time on AMD cards: recorded output of rocprofv3, and verdicts that rest on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.judge.judge import Policy, rule
from harness.benchmark.kernel_time import rocprof
from harness.benchmark.kernel_time.profile import KernelLaunches, KernelTimeUnavailable
from harness.verdict import NO_PROFILER, Verdict
from tests.support.benchmarks import rocprof_case as case
from tests.support.benchmarks.benchmark_case import BENCH, judge
from tests.support.benchmarks.confirm_case import FAKE_CARD

CARD = replace(FAKE_CARD, id="hip:0", kind="amd")
AUTO = Policy(approval="auto")


def judged(folder: Path, before: str, after: str) -> Verdict:
    def source(cost: float, trace: str) -> str:
        return f"COST = {cost}\nTRACE = {trace!r}\n\ndef err(m):\n    return 0\n"

    return judge(folder, source(70.0, after), incumbent=source(100.0, before), device=CARD,
                 files={"bench.py": BENCH + case.DRIVER})


@pytest.fixture
def profiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    program = case.install(tmp_path / "bin")
    monkeypatch.setattr(rocprof, "find_program", lambda: program)
    return program


@pytest.mark.parametrize(("name", "kernel", "launches"), [
    ("sdk_docs_2025-08_kernel_trace", "divide_kernel(float*, float const*, float const*, int, int)",
     KernelLaunches(launches=2, total_ns=23640, least_ns=11200, blocks=32768)),
    ("sdk_docs_2024-10_kernel_trace",
     "multiply_kernel(float*, float const*, float const*, int, int)",
     KernelLaunches(launches=1, total_ns=139563, least_ns=139563, blocks=16384)),
    ("hpctraining_old_kernel_trace", "NormKernel2(int, double const*, double*)",
     KernelLaunches(launches=1, total_ns=3520, least_ns=3520, blocks=1)),
    ("hpctraining_mi300a_rocpd_kernel_trace", "__omp_offloading_30_57b9f__QMnorm_modPnorm_l23",
     KernelLaunches(launches=3, total_ns=285760, least_ns=90680, blocks=2736)),
    ("tracelens_kernel_trace", "__amd_rocclr_copyBuffer",
     KernelLaunches(launches=1, total_ns=6009, least_ns=6009, blocks=1))])
def test_every_recorded_version_is_parsed(name: str, kernel: str,
                                          launches: KernelLaunches) -> None:
    found = rocprof.parse((case.RECORDED / f"{name}.csv").read_text())
    assert found[kernel] == launches


HEAD = case.TRACE.read_text().splitlines()[0]


@pytest.mark.parametrize(("text", "why"), [
    (f"{HEAD}\n1,2\n", "malformed"), ('"a\n', "malformed"),
    ("Kind\nKERNEL_DISPATCH\n", "malformed"),
    (case.scaled(0.0), "has no time for a kernel"),
    (case.TRACE.read_text().replace("1550151853029637", "\u0661"), "malformed")])
def test_invalid_trace_is_refused(text: str, why: str) -> None:
    with pytest.raises(KernelTimeUnavailable, match=why):
        rocprof.parse(text)


@given(st.text())
def test_any_text_parses_or_is_unavailable(text: str) -> None:
    for whole in (text, f"{HEAD}\n{text}"):
        try:
            rocprof.parse(whole)
        except KernelTimeUnavailable as error:
            assert "\x1b" not in error.what


def test_gain_shown_by_rocprofv3_is_kept_without_a_person(profiler: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, case.scaled(1.0), case.scaled(0.7))
    assert not verdict.audit and verdict.kernels[0].name.startswith("void addition_kernel<float>")
    assert next(entry.detail for entry in verdict.evidence if entry.kind == "kernel-time") == (
        "GPU kernel time went from 32.05 us to 22.44 us per call (3 launches of void "
        "addition_kernel<float>(float*, float const*, float const*, int, int), then 3 launches of "
        "void addition_kernel<float>(float*, float const*, float const*, int, int)), of the whole "
        "run from 0.09616 ms to 0.06731 ms, by rocprofv3")
    assert rule(verdict, AUTO).kind == "keep"


def test_gain_that_rocprofv3_does_not_show_asks_a_person(profiler: str, tmp_path: Path) -> None:
    ruling = rule(judged(tmp_path, case.scaled(1.0), case.scaled(1.3)), AUTO)
    assert ruling.kind == "ask" and "GPU kernel time contradicts 1.43x: it went from 32.05 us " \
        "to 41.67 us" in ruling.doubts[0]


def test_gain_without_a_profiler_is_kept_and_says_so(tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocprof, "find_program", lambda: "")
    verdict = judged(tmp_path, case.scaled(1.0), case.scaled(0.7))
    [finding] = verdict.audit
    assert finding.rule == NO_PROFILER and finding.detail.endswith(
        "not confirmed by kernel time: rocprofv3 is neither in PATH nor in /opt/rocm/bin")
    ruling = rule(verdict, AUTO)
    assert ruling.kind == "keep" and ruling.reason.endswith(
        "; kernel time was not available, the benchmark's own times decide")
    assert rule(verdict, Policy(approval="flagged")).kind == "ask"
    assert rule(verdict, Policy(approval="flagged", has_answer=True)).kind == "keep"
