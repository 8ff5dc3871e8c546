"""Profiled kernels are evidence, and timed calls that are shorter than them are flagged."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from harness.formats.json_codec import ConvertError, convert
from harness.isolation.rpc import Peer, PeerError
from harness.runners import kernel_spans
from harness.runners.kernel_spans import CallProfile, KernelSpan
from harness.timing.paired_timing import ClassTiming
from tests.support.paths import ROOT
from tests.support.programs import forked_program


def profile_of(*kernels: tuple[str, float, float], busy_us: float = 10.0) -> CallProfile:
    return CallProfile(busy_ns=1e3 * busy_us, kernels=tuple(
        KernelSpan(name=name, launches=launches, ns=1e3 * us) for name, launches, us in kernels))


def timed(us: float) -> ClassTiming:
    return ClassTiming(config_class="big", candidate_us=us, incumbent_us=us, log_ratios=(0.0, 0.0))


def test_evidence_lists_kernels_by_class_and_side() -> None:
    both = {("candidate", "big"): profile_of(("softmax_kernel", 1.0, 4.0), ("memset", 2.0, 0.5)),
            ("incumbent", "big"): profile_of(("old_kernel", 1.0, 8.0))}
    lines = kernel_spans.evidence(both, ["small", "big"])
    assert [line.detail for line in lines] == [
        "big: candidate softmax_kernel 4.00 us, memset 0.50 us in 2; incumbent old_kernel 8.00 us "
        "(profiler)"]
    [earlier] = kernel_spans.evidence(both, ["big"], earlier=["incumbent"])
    assert "; incumbent, profiled earlier, old_kernel 8.00 us (profiler)" in earlier.detail


def test_kernel_names_are_sanitised() -> None:
    assert "\x1b" not in profile_of(("\x1b[31mred\x07", 1.0, 1.0)).describe()


@pytest.mark.parametrize(("busy_us", "us", "flagged"), [
    (10.0, 10.0, False), (10.0, 12.0, False), (10.0, 7.0, False), (10.0, 6.0, True),
    (10.0, 0.1, True), (1.5, 0.1, False), (2.0, 1.0, True)])
def test_timed_calls_shorter_than_profiled_kernels_are_flagged(busy_us: float, us: float,
                                                               flagged: bool) -> None:
    profiles = {("candidate", "big"): profile_of(busy_us=busy_us)}
    findings = kernel_spans.too_short(profiles, {"big": timed(us)})
    assert [(finding.rule, finding.severity) for finding in findings] == [
        ("spans", "flag")] * flagged
    profiles = {("incumbent", "big"): profile_of(busy_us=busy_us)}
    assert kernel_spans.too_short(profiles, {"big": timed(us)}) == []


@pytest.mark.parametrize("answer", [
    {}, {"busy_ns": -1.0, "kernels": []}, {"busy_ns": "much", "kernels": []},
    {"busy_ns": 1.0, "kernels": [{"name": "k", "launches": 1.0, "ns": -1.0}]},
    {"busy_ns": 1.0, "kernels": [{"name": "k", "launches": 1.0, "ns": 1.0}] * 9},
    {"busy_ns": float("nan"), "kernels": []}])
def test_invalid_profile_is_an_error(answer: dict[str, Any]) -> None:
    with pytest.raises(ConvertError):
        convert(answer, CallProfile)

    class Liar:
        def ask(self, op: str, **_: object) -> dict[str, Any]:
            return answer

    with pytest.raises(PeerError, match="sent an invalid answer"):
        kernel_spans.profile(cast(Peer, Liar()), "case")


def test_profiling_imports_no_compiler(tmp_path: Path) -> None:
    """torch.profiler.profile would import torch._inductor, which takes seconds."""
    program = tmp_path / "profiled.py"
    program.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from harness.child.run import spans\n"
        "with spans.profile(use_device=None, use_cpu=True, use_kineto=True) as watching:\n"
        "    spans.torch.ones(8, 8) @ spans.torch.ones(8, 8)\n"
        "names = {event.name() for event in watching.kineto_results.events()}\n"
        "print('aten::mm' in names, 'torch._inductor' in sys.modules)\n")
    printed = forked_program.output(program, folder=tmp_path, interpret=False)
    assert printed.splitlines()[-1:] == ["True False"]
