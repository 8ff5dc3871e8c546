"""A reported gain and the kernel time of both sides, through whole verdicts; no GPU is needed."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from engine.judge.judge import Policy, rule
from harness.benchmark.kernel_time import cupti
from harness.benchmark.runs.command_session import Progress
from harness.benchmark.verdict import confirm_gain
from harness.benchmark.verdict.confirm_gain import BY_OWN_TIMES, UNCONFIRMED
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import Cancelled, EnvironmentFault
from harness.verdict import Finding, Verdict
from tests.support.benchmarks import kernel_time_case as case
from tests.support.benchmarks.benchmark_case import BENCH, judge
from tests.support.benchmarks.confirm_case import (
    DRIVER,
    FAKE_CARD,
    KERNELS_BEFORE,
    TRACED,
    kernel_source,
)


@pytest.fixture(autouse=True)
def stand_in(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = str(case.cupti(tmp_path_factory.mktemp("cupti")))
    monkeypatch.setattr(cupti, "cupti_libraries", lambda python: [ours])


def judged(folder: Path, launched: str, *, cost: float = 70.0, more: str = "", base: str = "",
           device: Device = FAKE_CARD, progress: Progress | None = None,
           cancel: threading.Event | None = None) -> Verdict:
    return judge(
        folder,
        kernel_source(cost, launched, more),
        incumbent=kernel_source(100.0, KERNELS_BEFORE, base),
        files={"bench.py": BENCH + DRIVER},
        device=device,
        cancel=cancel,
        progress=progress,
    )


def finding_of(verdict: Verdict) -> Finding:
    """Return the only finding on a gain that is not on its source; it must be a flag."""
    assert verdict.valid and verdict.correct and (verdict.speedup or 0) > 1.3
    assert {row.outcome for row in verdict.rows} == {"faster"}
    (finding,) = (finding for finding in verdict.audit
                  if finding.rule not in ("files", "hidden-code"))
    assert finding.severity == "flag"
    return finding


def flagged(verdict: Verdict) -> str:
    """Return why a gain is not confirmed, as its finding says."""
    detail = finding_of(verdict).detail
    assert detail.startswith(UNCONFIRMED.detail)
    return detail.removeprefix(UNCONFIRMED.detail)


def test_gain_shown_by_kernel_time_is_confirmed(tmp_path: Path) -> None:
    verdict = judged(tmp_path, case.launched(("norm", 500, 22_000), ("flush", 500, 20_100)))
    assert verdict.valid and not verdict.audit and (verdict.speedup or 0) > 1.3
    assert next(entry.detail for entry in verdict.evidence if entry.kind == "kernel-time") == (
        "GPU kernel time went from 30 us to 22 us per call (500 launches of norm, then 500 "
        "launches of norm), of the whole run from 25 ms to 21.05 ms, by CUPTI; 1 unchanged kernels "
        "do not count")


def test_gain_contradicted_by_kernel_time_is_flagged(tmp_path: Path) -> None:
    """Overlapping kernels, or kernels that replace copies, may take longer in a faster call."""
    verdict = judged(tmp_path, case.launched(("norm", 500, 36_000), ("flush", 500, 20_000)))
    [found] = verdict.audit
    assert (found.rule, found.severity, found.detail) == (
        "kernel-time", "flag",
        "GPU kernel time contradicts 1.43x: it went from 30 us to 36 us per call")
    assert any(entry.kind == "kernel-time" for entry in verdict.evidence) and verdict.wall_s > 0


@pytest.mark.slow
@pytest.mark.parametrize(("more", "why"), [
    (f"{TRACED}raise SystemExit('seen')\n", ": the candidate: exited with 1: seen"),
    (f"{TRACED}spoil = lambda rows: rows[1:]\n", ": the candidate: has "),
    (f"{TRACED}err = lambda m: 1\n", ": the candidate: row 1: err is '1', expected"),
    (f"{TRACED}after = lambda: os._exit(0)\n",
     ": the candidate: no process of the command loaded CUDA"),
    (f"{TRACED}import atexit; atexit.register(os._exit, 0)\n",
     ": the candidate: CUPTI's output is incomplete"),
    (f"{TRACED}import glob; after = lambda: open(glob.glob("
     "os.environ['HOME'] + '/kernel-time-*')[0] + '/k.1', 'w').write('1')\n",
     ": the candidate: CUPTI's folder holds other files")])
def test_failed_observation_keeps_the_gain_unconfirmed(more: str, why: str,
                                                       tmp_path: Path) -> None:
    assert flagged(judged(tmp_path, KERNELS_BEFORE, more=more)).startswith(why)


@pytest.mark.slow
@pytest.mark.parametrize(("more", "base", "why"), [
    (f"{TRACED}COST = 50.0\n", "",
     r": the candidate: the observed run reported 0\.7\d times the lowest cost "),
    ("", f"{TRACED}COST = 125.0\n", r": the observed run reported 1\.7\dx, more than before")])
def test_observed_run_that_reports_more_confirms_nothing(
        more: str, base: str, why: str, tmp_path: Path) -> None:
    faster = case.launched(("norm", 500, 22_000), ("flush", 500, 20_100))
    assert re.match(why, flagged(judged(tmp_path, faster, more=more, base=base)))


@pytest.mark.slow
def test_run_slowed_by_cupti_confirms_a_gain(tmp_path: Path) -> None:
    faster = case.launched(("norm", 500, 22_000), ("flush", 500, 20_100))
    verdict = judged(tmp_path, faster, more=f"{TRACED}COST = 90.0\n",
                     base=f"{TRACED}COST = 120.0\n")
    assert verdict.valid and not verdict.audit


@pytest.mark.slow
@pytest.mark.parametrize(("step", "error"), [
    ("compiler", EnvironmentFault("no C compiler found")),
    ("build_library", OSError("disk full")),
    ("build_library", ZeroDivisionError("division by zero"))])
def test_any_error_keeps_the_gain_unconfirmed(step: str, error: Exception, tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise error

    monkeypatch.setattr(cupti, step, fails)
    assert str(error) in flagged(judged(tmp_path, KERNELS_BEFORE))


@pytest.mark.slow
@pytest.mark.parametrize(("device", "detail", "kept"), [
    (inventory.find("cpu"), BY_OWN_TIMES.detail, "keep"),
    (FAKE_CARD, f"{UNCONFIRMED.detail}: kernel time hardly changed (50 us to 50 us per call)",
     "ask")], ids=lambda value: "")
def test_unconfirmed_gain_asks_a_person_on_a_gpu_and_is_kept_on_a_cpu(
        device: Device, detail: str, kept: str, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    if device.kind != "nvidia":
        monkeypatch.setattr(confirm_gain, "_profiles", None)  # calling it fails
    verdict = judged(tmp_path, KERNELS_BEFORE, device=device)
    assert finding_of(verdict).detail == detail
    ruling = rule(verdict, Policy(approval="auto"))
    assert ruling.kind == kept, ruling


@pytest.mark.slow
def test_kernel_time_is_not_measured_without_a_clear_gain(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm_gain, "_profiles", None)
    slower = judged(tmp_path / "a", KERNELS_BEFORE, cost=130.0)
    assert slower.valid and not slower.audit
    mixed = judged(tmp_path / "b", KERNELS_BEFORE, more=(
        "spoil = lambda rows: [{**r, 'fwd_us': float(r['fwd_us']) * 3} if r['m'] == 256 else r "
        "for r in rows]\n"))
    assert mixed.valid and mixed.audit == (UNCONFIRMED,)


@pytest.mark.slow
def test_cancel_during_confirmation_raises_cancelled(tmp_path: Path) -> None:
    cancel = threading.Event()

    def progress(stage: str, detail: str, done: float | None) -> None:
        if stage == "confirming" and "of the incumbent" in detail:
            cancel.set()

    with pytest.raises(Cancelled):
        judged(tmp_path, KERNELS_BEFORE, progress=progress, cancel=cancel)
