"""What the profiler saw of a call is told, and held against the times that are judged."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, cast

import pytest

from harness.formats.json_codec import ConvertError, convert
from harness.isolation.rpc import Peer, PeerError
from harness.runners import kernel_spans
from harness.runners.kernel_spans import CallProfile, KernelSpan
from harness.timing.paired_timing import ClassTiming
from tests.support.paths import ROOT


def seen(*kernels: tuple[str, float, float], busy_us: float = 10.0) -> CallProfile:
    return CallProfile(busy_ns=1e3 * busy_us, kernels=tuple(
        KernelSpan(name=name, launches=launches, ns=1e3 * us) for name, launches, us in kernels))


def timed(us: float) -> ClassTiming:
    return ClassTiming(config_class="big", candidate_us=us, incumbent_us=us, log_ratios=(0.0, 0.0))


def test_kernels_are_told_by_class_and_side() -> None:
    both = {("candidate", "big"): seen(("softmax_kernel", 1.0, 4.0), ("memset", 2.0, 0.5)),
            ("incumbent", "big"): seen(("old_kernel", 1.0, 8.0))}
    told = kernel_spans.evidence(both, ["small", "big"])
    assert [one.detail for one in told] == [
        "big: candidate softmax_kernel 4.00 us, memset 0.50 us in 2; incumbent old_kernel 8.00 us "
        "(profiler)"]
    [earlier] = kernel_spans.evidence(both, ["big"], earlier=["incumbent"])
    assert "; incumbent, seen earlier, old_kernel 8.00 us (profiler)" in earlier.detail


def test_what_a_kernel_is_called_is_no_escape_sequence() -> None:
    assert "\x1b" not in seen(("\x1b[31mred\x07", 1.0, 1.0)).told()


@pytest.mark.parametrize(("busy_us", "us", "flagged"), [
    (10.0, 10.0, False), (10.0, 12.0, False), (10.0, 7.0, False), (10.0, 6.0, True),
    (10.0, 0.1, True), (1.5, 0.1, False), (2.0, 1.0, True)])
def test_timed_calls_that_do_less_than_others_are_flagged(busy_us: float, us: float,
                                                         flagged: bool) -> None:
    profiles = {("candidate", "big"): seen(busy_us=busy_us)}
    found = kernel_spans.too_short(profiles, {"big": timed(us)})
    assert [(one.rule, one.severity) for one in found] == [("spans", "flag")] * flagged
    assert (
        kernel_spans.too_short({("incumbent", "big"): seen(busy_us=busy_us)}, {"big": timed(us)})
        == []
    )


@pytest.mark.parametrize("answer", [
    {}, {"busy_ns": -1.0, "kernels": []}, {"busy_ns": "much", "kernels": []},
    {"busy_ns": 1.0, "kernels": [{"name": "k", "launches": 1.0, "ns": -1.0}]},
    {"busy_ns": 1.0, "kernels": [{"name": "k", "launches": 1.0, "ns": 1.0}] * 9},
    {"busy_ns": float("nan"), "kernels": []}])
def test_nonsense_is_no_answer(answer: dict[str, Any]) -> None:
    with pytest.raises(ConvertError):
        convert(answer, CallProfile)

    class Liar:
        def ask(self, op: str, **_: object) -> dict[str, Any]:
            return answer

    with pytest.raises(PeerError, match="sent an invalid answer"):
        kernel_spans.profile(cast(Peer, Liar()), "case")


def test_a_look_by_the_profiler_imports_no_compiler() -> None:
    """torch.profiler's own class imports torch._inductor, which takes each process seconds."""
    program = (
        "import sys\n"
        "from harness.child.run import spans\n"
        "events = spans.seen(lambda: spans.torch.ones(8, 8) @ spans.torch.ones(8, 8), 'cpu')\n"
        "print('aten::mm' in {one.name() for one in events}, 'torch._inductor' in sys.modules)\n")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT,
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-1:] == ["True False"], done
