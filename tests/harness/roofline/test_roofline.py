"""The roofline counts all bytes at the measured rate of their level; the floor lies below it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.case import Errors
from harness.devices.device import Device
from harness.evaluate import verdict_rows
from harness.evaluate.verdict_rows import EvaluationResults
from harness.formats.json_codec import from_json, to_json
from harness.roofline import ceilings, roofline
from harness.roofline.ceilings import HEADROOM, Ceilings, Level
from harness.roofline.measured_peaks import GpuCeilings
from harness.roofline.roofline import Roofline
from harness.search.trials.trials import Trial
from harness.tasks.target import Arg, ConfigClass, Target
from harness.timing.paired_timing import ClassTiming
from harness.timing.plan import Plan
from harness.verdict import Verdict

H200 = Device(id="cuda:0", kind="nvidia", name="NVIDIA H200", uuid="GPU-1", arch="sm_90")
PEAKS = GpuCeilings(card="NVIDIA H200", torch="2.13", copy_gb_per_s=4240.0,
                    tflops={"bf16": 740.0, "tf32": 400.0, "fp32": 50.0})
RIGHT = Errors(absolute=0.0, relative=0.0, bad=0, used=0.0, over=0.0, allowed=1e-6)


def rmsnorm(rows: int, **fields: Any) -> Target:
    """Return a bf16 RMSNorm of 4096 columns: it reads and writes every element once."""
    return Target(**({
        "op": "rmsnorm", "language": "triton", "source": "k.py", "entry": "k",
        "reference": "r.py", "args": (
            Arg(name="x", dtype="bfloat16", shape=("m", "n")),
            Arg(name="o", dtype="bfloat16", shape=("m", "n"), role="output")),
        "classes": (ConfigClass(name="c", shape={"m": rows, "n": 4096}),)} | fields))


def of_h200(target: Target, *, cold: bool = True, peaks: GpuCeilings | None = PEAKS) -> Roofline:
    reach = roofline.of_device(H200, target, ceilings.of_gpu(H200, target), peaks, cold=cold)
    assert reach is not None
    return reach


def verdict(target: Target, latency_us: float, *, cold: bool = True) -> Verdict:
    """Return a verdict in which the candidate takes this latency on an H200."""
    seen = EvaluationResults(
        target=target, plan=Plan(), errors={"c": RIGHT},
        timings={"c": ClassTiming(config_class="c", candidate_us=latency_us,
                                  incumbent_us=2 * latency_us, log_ratios=(0.7, 0.69, 0.68))},
        ceilings=ceilings.of_gpu(H200, target), roofline=of_h200(target, cold=cold),
        on_cpu=False, same=False)
    rows, findings = verdict_rows.rows(seen)
    return verdict_rows.with_overall(
        Verdict(valid=True, correct=True, rows=rows, audit=findings), seen)


def test_cold_call_counts_all_its_bytes_at_the_measured_copy_rate() -> None:
    """134 MB in 34 us are 93 % of 4.24 TB/s; the 60 MiB that might stay in the cache count too."""
    judged = verdict(rmsnorm(8192), 34.0)
    [row] = judged.rows
    assert row.roofline_us == pytest.approx(8192 * 4096 * 4 / 4.24e6)
    assert row.pct_of_roofline == pytest.approx(93, abs=0.5)
    assert judged.pct_of_roofline == pytest.approx(row.pct_of_roofline)
    assert row.floor_us is not None and row.floor_us < 0.5 * row.roofline_us
    assert not row.note


def test_data_that_nearly_fit_the_cache_still_count_for_the_roofline() -> None:
    [row] = verdict(rmsnorm(4095), 35.2).rows
    assert row.pct_of_roofline == pytest.approx(45, abs=0.5)
    assert row.floor_us is not None and 100 * row.floor_us / 35.2 < 20


def test_warm_call_whose_data_fit_the_cache_is_bound_by_the_cache() -> None:
    small, large = rmsnorm(2048), rmsnorm(8192)
    cache = ceilings.of_gpu(H200, small)
    assert cache is not None
    for target, rate in ((small, cache.levels[0].gb_per_s), (large, 4240.0)):
        [config_class] = target.classes
        assert of_h200(target, cold=False).point(target, config_class).rate == rate
        assert of_h200(target).point(target, config_class).rate == 4240.0


def test_compute_bound_call_runs_at_the_measured_peak_of_its_precision() -> None:
    target = rmsnorm(8192, flops=10**11)
    point = of_h200(target).point(target, target.classes[0])
    assert (point.limiter, point.rate) == ("compute", 740e3)
    assert point.us == pytest.approx(1e11 / 740e6)


def test_published_rates_are_used_where_none_were_measured() -> None:
    target = rmsnorm(8192)
    assert of_h200(target, peaks=None).point(target, target.classes[0]).rate == 4800.0
    unknown = replace(H200, name="NVIDIA X")
    assert roofline.of_device(unknown, target, None, None, cold=True) is None
    measured = roofline.of_device(unknown, target, None, PEAKS, cold=False)
    assert measured is not None and measured.point(target, target.classes[0]).rate == 4240.0


def test_cpu_data_come_from_the_smallest_level_that_holds_them() -> None:
    limits = Ceilings(gflops=110.0, copy_gb_per_s=8.0, levels=(
        Level(1e6, 220.0), Level(1e9, 11.0)))
    reach = roofline.of_cpu(limits)
    assert reach.gflops == pytest.approx(110.0 / HEADROOM)
    for rows, rate in ((64, 200.0), (8192, 8.0)):  # 1 MB, 134 MB
        target = rmsnorm(rows)
        assert reach.point(target, target.classes[0]).rate == pytest.approx(rate)


def test_percent_of_a_latency_below_the_roofline_is_capped_with_a_note() -> None:
    [row] = verdict(rmsnorm(8192), 30.0).rows
    assert row.pct_of_roofline == 100 and row.latency_us == 30.0
    assert row.note == ("31.7 us at the measured rates: shown as 100 % of the roofline, "
                        "106 % before the cap")


def test_latency_below_the_floor_is_withheld() -> None:
    judged = verdict(rmsnorm(8192), 14.0)
    assert [finding.rule for finding in judged.audit] == ["physical-floor"]
    assert judged.rows[0].latency_us is judged.rows[0].pct_of_roofline is None


def test_verdicts_and_trials_of_earlier_versions_still_decode() -> None:
    """Earlier versions recorded the floor as `bound_us` in verdicts and in trials."""
    row = {"config_class": "c", "correct": True, "latency_us": 34.0, "bound_us": 14.3,
           "pct_of_roofline": 42.0}
    old = from_json(to_json({"valid": True, "correct": True, "latency_us": 34.0, "bound_us": 14.3,
                             "latency_kind": "measured-gpu", "rows": [row]}), Verdict)
    assert old.rows[0].latency_us == 34.0 and old.floor_us is old.rows[0].roofline_us is None
    trial = from_json(to_json({"number": 0, "config": {}, "correctness": "PASS", "tag": "kept",
                               "latency_us": 34.0, "latency_kind": "measured-gpu",
                               "bound_us": 14.3}), Trial)
    assert trial.kept and trial.roofline_us is None


@given(st.floats(0, 1e9), st.floats(1e-3, 1e9))
def test_percent_is_at_most_100(roofline_us: float, latency_us: float) -> None:
    assert 0 <= roofline.percent(roofline_us, latency_us) <= 100


@given(st.integers(1, 10**5), st.booleans())
def test_roofline_is_not_below_the_floor(rows: int, cold: bool) -> None:
    target = rmsnorm(rows)
    limits = ceilings.of_gpu(H200, target)
    assert limits is not None
    reach_us = of_h200(target, cold=cold).point(target, target.classes[0]).us
    floor_us = ceilings.floor_us(limits, target, target.classes[0])
    assert floor_us <= reach_us * (1 + 1e-9) and math.isfinite(reach_us)
