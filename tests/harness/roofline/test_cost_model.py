"""The analytic prediction respects the floor, is monotonic, and never counts as a measurement."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.compile.kernel_resources import KernelResources, Section
from harness.devices import datasheets
from harness.devices.datasheets import CardModel
from harness.errors import InputError
from harness.roofline import ceilings, cost_model
from harness.roofline.cost_model import Prediction, predict
from harness.roofline.predictor import predict_source
from harness.tasks.target import Arg, ConfigClass, Target
from harness.tasks.task_file import load
from harness.verdict import TRUST, LatencyKind, Verdict
from tests.support.paths import EXAMPLES
from tests.support.programs import shared_zygotes

CARDS = {card.name: card for card in datasheets.cards()}
H200 = CARDS["h200"]


def task(n: int = 1 << 20, *, flops: int = 0, moved: int | None = None,
         dtype: str = "bfloat16") -> Target:
    return Target(op="x", language="triton", source="k.py", entry="x", reference="r.py",
                  flops=flops, bytes=moved,
                  args=(Arg(name="x", dtype=dtype, shape=("n",)),
                        Arg(name="out", dtype=dtype, shape=("n",), role="output")),
                  classes=(ConfigClass(name="c", shape={"n": n}),))


def resources(**fields: Any) -> KernelResources:
    defaults: dict[str, Any] = {
        "kernel": "k", "config_class": "c", "arch": "sm_90", "registers": 32, "spills": 0,
        "threads": 128, "programs": 4096, "grid": (4096, 1, 1), "load_bytes": 16,
        "occupancy": 1.0, "sections": (Section(loop=True, load_bytes=16, instructions=20),
                                       Section(loop=False, instructions=60))}
    return KernelResources(**(defaults | fields))


def latency(target: Target, kernel: KernelResources, card: CardModel = H200, *,
            cold: bool = True) -> float:
    predicted = predict(target, target.classes[0], [kernel], card, cold=cold)
    assert predicted is not None
    return predicted.latency_us


KERNELS = st.builds(
    resources, spills=st.integers(0, 4096), threads=st.sampled_from([64, 128, 256, 512, 1024]),
    registers=st.integers(16, 64), programs=st.integers(1, 1 << 20),
    occupancy=st.floats(0.01, 1.0), shared_bytes=st.integers(0, 60_000),
    matrix=st.sampled_from(["", "mma", "wgmma", "tcgen05", "mfma"]), stages=st.integers(1, 5),
    sections=st.lists(st.builds(Section, loop=st.booleans(), load_bytes=st.integers(0, 512),
                                instructions=st.integers(0, 2000),
                                flops=st.sampled_from([0, 65536, 2097152])),
                      max_size=4).map(tuple))
AMOUNTS = st.integers(0, 10**13)
NAMES = st.sampled_from(sorted(CARDS))


@given(KERNELS, NAMES, AMOUNTS, AMOUNTS, st.booleans())
def test_prediction_is_not_below_the_physical_floor(
        kernel: KernelResources, name: str, flops: int, moved: int, cold: bool) -> None:
    card, target = CARDS[name], task(flops=flops, moved=moved)
    predicted = predict(
        target, target.classes[0], [replace(kernel, arch=card.arch)], card, cold=cold
    )
    assert predicted is not None and predicted.latency_kind == "predicted"
    floor = ceilings.floor_us(ceilings.of_card(card, target), target, target.classes[0])
    assert predicted.latency_us >= predicted.floor_us == floor
    assert predicted.latency_us >= cost_model.LAUNCH_US


@given(KERNELS, NAMES, AMOUNTS, AMOUNTS, st.integers(1, 10**12), st.booleans())
def test_more_work_is_not_predicted_faster(
        kernel: KernelResources, name: str, flops: int, moved: int, more: int, cold: bool) -> None:
    card = CARDS[name]
    kernel = replace(kernel, arch=card.arch)
    now = latency(task(flops=flops, moved=moved), kernel, card, cold=cold)
    close = now * (1 - 1e-9)
    assert latency(task(flops=flops, moved=moved + more), kernel, card, cold=cold) >= close
    assert latency(task(flops=flops + more, moved=moved), kernel, card, cold=cold) >= close


@given(KERNELS, st.integers(1, 4096), AMOUNTS, AMOUNTS)
def test_more_wasteful_kernel_or_slower_card_is_not_predicted_faster(
        kernel: KernelResources, more: int, flops: int, moved: int) -> None:
    target = task(flops=flops, moved=moved)
    now = latency(target, kernel) * (1 - 1e-9)
    assert latency(target, replace(kernel, spills=(kernel.spills or 0) + more)) >= now
    if sum(part.load_bytes > 0 for part in kernel.sections) < 2:
        # with two loops that load, fewer resident programs may find their data in the near cache
        assert latency(target, replace(kernel, occupancy=(kernel.occupancy or 0) / 2)) >= now
    longer = tuple(replace(part, instructions=part.instructions + more) for part in kernel.sections)
    assert latency(target, replace(kernel, sections=longer)) >= now
    assert latency(target, kernel, replace(H200, gb_per_s=2400.0)) >= now


def test_wide_loads_full_waves_and_matrix_instructions_are_predicted_faster() -> None:
    long = task(1 << 26)
    narrow = resources(sections=(Section(loop=True, load_bytes=2, instructions=20),))
    assert latency(long, narrow) > 2 * latency(long, resources())
    product = task(1 << 20, flops=10**11)
    tensor, old, none = (latency(product, resources(matrix=kind)) for kind in ("wgmma", "mma", ""))
    assert tensor < old < none
    fits, tail = (latency(product, resources(matrix="wgmma", programs=n, occupancy=0.25))
                  for n in (132, 133))
    assert tail > 1.8 * fits


def test_launch_takes_the_time_of_its_fastest_autotune_config_and_launches_add_up() -> None:
    target = task(1 << 26)
    slow, fast = resources(config="a", spills=512), resources(config="b")
    both = predict(target, target.classes[0], [slow, fast], H200)
    assert both is not None and both.latency_us == latency(target, fast)
    twice = predict(target, target.classes[0], [fast, slow, fast, slow], H200)
    assert twice is not None and both.latency_us < twice.latency_us < both.latency_us + 2.5


def test_unlaunchable_candidate_has_no_prediction() -> None:
    target = task(1 << 26)
    big = resources(shared_bytes=393_216)
    assert predict(target, target.classes[0], [big], H200) is None
    assert predict(target, target.classes[0], [], H200) is None
    refused = predict_source(target, [big], H200, cold=True)
    assert refused.latency_us is None and "393216" in refused.reasons[0]
    unknown = predict_source(target, [], H200, cold=True)
    assert unknown.latency_us is None and unknown.error and not unknown.reasons
    spills, good = (predict_source(target, [resources(spills=count)], H200, cold=True).latency_us
                    for count in (999, 0))
    assert spills is not None and good is not None and good < spills
    with pytest.raises(InputError, match="sm_90"):
        predict(target, target.classes[0], [resources()], CARDS["mi300x"])


KINDS: tuple[LatencyKind, ...] = ("measured-gpu", "measured-cpu", "reported", "predicted")


def test_prediction_is_trusted_less_than_any_measurement() -> None:
    assert [TRUST[kind] for kind in KINDS] == [3, 2, 1, 0]


def test_latency_kind_of_a_prediction_cannot_be_changed() -> None:
    made = Prediction(config_class="c", card="h200", latency_us=1.0, floor_us=0.5,
                      roofline_us=0.6, limiter="memory")
    with pytest.raises(TypeError):
        Prediction(**{"config_class": "c", "card": "h", "latency_us": 1.0, "floor_us": 0.5,
                      "roofline_us": 0.6,
                      "limiter": "m", "latency_kind": "measured-gpu"})
    with pytest.raises(ValueError, match="init=False"):
        replace(made, **{"latency_kind": "measured-gpu"})
    with pytest.raises(FrozenInstanceError):
        made.latency_kind = "measured-gpu"  # type: ignore[misc, assignment]
    with pytest.raises(ValueError, match="not a measured speedup"):
        Verdict(valid=True, correct=True, latency_us=1.0, latency_kind="predicted", speedup=2.0)


@pytest.mark.slow
def test_example_is_predicted_for_absent_cards(tmp_path: Path) -> None:
    example = EXAMPLES / "softmax_triton"
    target = load(example / "task.yaml")
    chosen = [CARDS[name] for name in ("h200", "l4", "mi300x")]
    predicted = shared_zygotes.resources(
        target, example, sorted({card.arch for card in chosen}), tmp_path)
    times = {}
    for card in chosen:
        mine = [prediction for prediction in predicted if prediction.arch == card.arch]
        assert all(sum(part.loop and part.load_bytes > 0 for part in prediction.sections) == 3
                   for prediction in mine if prediction.arch.startswith("sm"))
        best = predict_source(target, mine, card, cold=True)
        assert len(best.predictions) == 5 and best.latency_us is not None
        times[card.name] = best.latency_us
    assert times["l4"] > 2 * times["h200"] and times["mi300x"] < times["l4"]
