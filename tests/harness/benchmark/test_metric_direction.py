"""Which direction of a metric is better: its unit says it, the words of its name, or nobody."""

from __future__ import annotations

import pytest

from engine.manifest.load import parse
from harness.benchmark.spec.command_target import Metric
from harness.benchmark.spec.metric_units import resolve, unit_in
from harness.errors import InputError
from harness.formats import yaml_document
from tests.support.benchmark_case import MANIFEST

LOWER = ("latency", "time", "elapsed", "duration", "cycles", "delay", "kernel_time", "time_min",
         "forward_latency", "forwardLatency", "Forward Latency", "p50.latency", "GPU-time",
         "runtime", "timeMs", "time_per_token", "sm__cycles")
HIGHER = ("throughput", "bandwidth", "speed", "Speedup", "token_rate", "flops", "score",
          "tokens_per_s", "tokens_per_sec", "per_second", "tokens/s", "it/sec", "memBandwidth",
          "throughput_tokens_s", "bw GB_s", "gb_per_s", "time_rate_tflops")


@pytest.mark.parametrize("name", LOWER)
def test_a_name_that_means_time_is_better_lower(name: str) -> None:
    metric = resolve(Metric(name=name))
    assert not metric.is_rate and metric.cost(2.0) > metric.cost(1.0)


@pytest.mark.parametrize("name", HIGHER)
def test_a_name_that_means_a_rate_is_better_higher(name: str) -> None:
    metric = resolve(Metric(name=name))
    assert metric.is_rate and metric.cost(2.0) < metric.cost(1.0)


@pytest.mark.parametrize(("name", "unit"), [
    ("tokens_per_s", "tokens/s"), ("gb_per_sec", "gb/s"), ("bw_GB_s", "GB/s"), ("req/s", "req/s"),
    ("timeMs", "Ms"), ("kernelTimeUs", "Us"), ("us_per_call", "us"), ("GFlops", "GFlops"),
    ("kB/s", "kB/s"), ("load_s", "s"), ("throughput_s", ""), ("per_s", "")])
def test_a_unit_is_read_as_it_is_commonly_spelled(name: str, unit: str) -> None:
    assert unit_in(name) == unit


def test_a_rate_by_its_name_counts_what_its_unit_says() -> None:
    assert resolve(Metric(name="gb_per_s")).cost(1000.0) == pytest.approx(1000.0)
    assert resolve(Metric(name="timeMs")).cost(2.0) == pytest.approx(2000.0)


@pytest.mark.parametrize("name", ["value", "result", "bw", "timeline", "accelerate", "loss",
                                  "latency_score", "miss_rate", "overtime", "x", "sometimes"])
def test_a_name_that_says_nothing_or_both_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="says no unit and no direction"):
        resolve(Metric(name=name))
    assert not resolve(Metric(name=name, direction="lower")).is_rate
    assert resolve(Metric(name=name, direction="higher")).is_rate


def test_what_a_name_says_may_be_overruled() -> None:
    assert resolve(Metric(name="time", direction="higher")).is_rate


def test_a_manifest_is_refused_in_one_line_that_says_how_to_give_the_direction() -> None:
    target = {**MANIFEST["target"], "metrics": ["value"]}
    with pytest.raises(InputError) as caught:
        parse(yaml_document.dump({**MANIFEST, "target": target}), "m")
    told = str(caught.value)
    assert "target.metrics[0]: 'value': the name says no unit and no direction" in told
    assert "{name: value, direction: lower}" in told and "\n" not in told
    said = {**target, "metrics": [{"name": "value", "direction": "lower"}]}
    assert parse(yaml_document.dump({**MANIFEST, "target": said}), "m").target.metrics


def test_the_metric_of_a_whole_program_is_refused_alike() -> None:
    text = yaml_document.dump({**MANIFEST, "e2e_command": "python e2e.py", "e2e_metric": "value"})
    with pytest.raises(InputError, match=r"e2e_metric: .*\{name: value, direction: lower\}"):
        parse(text, "m")
