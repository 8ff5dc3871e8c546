"""The better direction of a metric follows from its unit or name; otherwise it must be given."""

from __future__ import annotations

import pytest

from engine.manifest.load import parse
from harness.benchmark.spec.command_target import Metric
from harness.benchmark.spec.metric_units import resolve, unit_in
from harness.errors import InputError
from harness.formats import yaml_document
from tests.support.benchmarks.benchmark_case import MANIFEST

LOWER = ("latency", "time", "elapsed", "duration", "cycles", "delay", "kernel_time", "time_min",
         "forward_latency", "forwardLatency", "Forward Latency", "p50.latency", "GPU-time",
         "runtime", "timeMs", "time_per_token", "sm__cycles")
HIGHER = ("throughput", "bandwidth", "speed", "Speedup", "token_rate", "flops", "score",
          "tokens_per_s", "tokens_per_sec", "per_second", "tokens/s", "it/sec", "memBandwidth",
          "throughput_tokens_s", "bw GB_s", "gb_per_s", "time_rate_tflops")


@pytest.mark.parametrize("name", LOWER)
def test_time_words_mean_lower_is_better(name: str) -> None:
    metric = resolve(Metric(name=name))
    assert not metric.is_rate and metric.cost(2.0) > metric.cost(1.0)


@pytest.mark.parametrize("name", HIGHER)
def test_rate_words_mean_higher_is_better(name: str) -> None:
    metric = resolve(Metric(name=name))
    assert metric.is_rate and metric.cost(2.0) < metric.cost(1.0)


@pytest.mark.parametrize(("name", "unit"), [
    ("tokens_per_s", "tokens/s"), ("gb_per_sec", "gb/s"), ("bw_GB_s", "GB/s"), ("req/s", "req/s"),
    ("timeMs", "Ms"), ("kernelTimeUs", "Us"), ("us_per_call", "us"), ("GFlops", "GFlops"),
    ("kB/s", "kB/s"), ("load_s", "s"), ("throughput_s", ""), ("per_s", "")])
def test_common_spellings_of_units_are_read(name: str, unit: str) -> None:
    assert unit_in(name) == unit


def test_unit_in_a_name_sets_the_cost() -> None:
    assert resolve(Metric(name="gb_per_s")).cost(1000.0) == pytest.approx(1000.0)
    assert resolve(Metric(name="timeMs")).cost(2.0) == pytest.approx(2000.0)


@pytest.mark.parametrize("name", ["value", "result", "bw", "timeline", "accelerate", "loss",
                                  "latency_score", "miss_rate", "overtime", "x", "sometimes"])
def test_name_without_unit_and_direction_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="says neither a unit nor a direction"):
        resolve(Metric(name=name))
    assert not resolve(Metric(name=name, direction="lower")).is_rate
    assert resolve(Metric(name=name, direction="higher")).is_rate


def test_direction_overrides_the_name() -> None:
    assert resolve(Metric(name="time", direction="higher")).is_rate


def test_manifest_error_shows_how_to_give_a_direction() -> None:
    target = {**MANIFEST["target"], "metrics": ["value"]}
    with pytest.raises(InputError) as caught:
        parse(yaml_document.dump({**MANIFEST, "target": target}), "m")
    message = str(caught.value)
    assert "target.metrics[0]: 'value': the name says neither a unit nor a direction" in message
    assert "{name: value, direction: lower}" in message and "\n" not in message
    said = {**target, "metrics": [{"name": "value", "direction": "lower"}]}
    assert parse(yaml_document.dump({**MANIFEST, "target": said}), "m").target.metrics


def test_end_to_end_metric_without_direction_is_refused() -> None:
    text = yaml_document.dump({**MANIFEST, "e2e_command": "python e2e.py", "e2e_metric": "value"})
    with pytest.raises(InputError, match=r"e2e_metric: .*\{name: value, direction: lower\}"):
        parse(text, "m")
