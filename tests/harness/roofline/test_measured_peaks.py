"""A card's peaks are measured once, cached and reported; here the CPU is measured instead."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.compile.place import Place
from harness.devices import datasheets, inventory
from harness.devices.device import Device
from harness.devices.monitoring import telemetry_sources
from harness.devices.monitoring.telemetry_sources import SharingMode
from harness.evaluate import device_limits
from harness.evaluate.evaluate import Evaluation
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.isolation import device_lock
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import Peer
from harness.roofline import ceilings, measured_peaks
from harness.roofline.measured_peaks import GpuCeilings
from harness.settings import Settings, Trees
from harness.tasks.target import ConfigClass, Target
from harness.timing.plan import Plan
from tests.support.kernels.kernel_case import DOUBLE, judge, target
from tests.support.programs import shared_zygotes

CARD = Device(id="cuda:0", kind="nvidia", name="NVIDIA H200", uuid="GPU-1", arch="sm_90")
H200 = GpuCeilings(card="NVIDIA H200", torch="2.13", copy_gb_per_s=4200.0,
                   tflops={"bf16": 740.0, "tf32": 400.0, "fp32": 50.0})


def limit(monkeypatch: pytest.MonkeyPatch, **constants: Any) -> None:
    """Set sizes for small copies and products and long limits; `constants` replace some of them."""
    tiny = {"COPIES": (1 << 16, 1 << 20), "SQUARES": (64, 32), "BEGIN_S": 60.0, "WALL_S": 120.0}
    for name, value in (tiny | constants).items():
        monkeypatch.setattr(measured_peaks, name, value)


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeviceLock]:
    """Hold the lock of an absent card, with a separate cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    limit(monkeypatch)
    with device_lock.acquire(CARD.lock_name) as taken:
        yield taken


def place(folder: Path, **fields: Any) -> Place:
    return Place(**({"device": "cpu", "scratch": str(folder)} | fields))


def test_peaks_are_measured_once_then_read_from_the_cache(tmp_path: Path, held: DeviceLock) -> None:
    assert measured_peaks.cached(CARD) is None
    found = measured_peaks.get_or_measure(
        CARD, place(tmp_path, zygote=shared_zygotes.zygote("python")), held)
    assert found is not None and found.card == CARD.name and found.torch
    assert found.copy_gb_per_s > 0 and {"bf16", "fp32"} <= found.tflops.keys()
    assert found.tflops.keys() | found.missing.keys() == set(measured_peaks.PRECISIONS)
    assert found.at.endswith("Z")
    nowhere = place(tmp_path, python="/nonexistent/python")
    assert measured_peaks.get_or_measure(CARD, nowhere, held) == found
    assert measured_peaks.cached(CARD) == found
    for other in (replace(CARD, uuid="GPU-2"), replace(CARD, name="NVIDIA L4")):
        assert measured_peaks.cached(other) is None  # peaks are valid for one card only
    path = measured_peaks._path(CARD)
    path.write_bytes(path.read_bytes().replace(b'"copy_gb_per_s":', b'"copy_gb_per_s":-'))
    assert measured_peaks.cached(CARD) is None


class ProductsNeverEnd(Peer):
    """Pauses the measuring program at a request for a product, so that it never answers."""

    def send(self, op: str, descriptors: Sequence[int] = (), /, **fields: object) -> None:
        if op == "product":
            self.pause()
        super().send(op, descriptors, **fields)


def test_products_that_exceed_the_limit_are_missing_and_earlier_results_are_kept(
        tmp_path: Path, held: DeviceLock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measuring program is a fork of a zygote, as in an evaluation."""
    zygote = shared_zygotes.zygote("python")
    limit(monkeypatch, SQUARES=(32,))
    other = replace(CARD, uuid="GPU-2")  # measured first, so that the zygote has imported torch
    assert measured_peaks.get_or_measure(other, place(tmp_path, zygote=zygote), held)
    limit(monkeypatch, WALL_S=2.0)
    monkeypatch.setattr(measured_peaks, "Peer", ProductsNeverEnd)
    began = time.monotonic()
    found = measured_peaks.get_or_measure(CARD, place(tmp_path, zygote=zygote), held)
    assert time.monotonic() - began < 10.0
    assert found is not None and found.copy_gb_per_s > 0 and not found.tflops
    assert "past its limit" in found.missing["bf16"] and found.missing["fp32"] == "out of time"


@pytest.mark.parametrize(("fields", "wall_s"), [
    ({"python": "/bin/false"}, 120.0),
    ({"device": "cuda:0"}, 120.0),                        # torch finds no GPU
    ({}, 0.05),                                           # ends before torch is imported
])
def test_failed_measurement_yields_no_evidence_and_is_not_repeated_at_once(
        fields: dict[str, Any], wall_s: float, tmp_path: Path, held: DeviceLock,
        monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, WALL_S=wall_s)
    zygote = shared_zygotes.zygote("python") if "device" in fields else None
    assert measured_peaks.get_or_measure(
        CARD, place(tmp_path, **fields, zygote=zygote), held) is None
    limit(monkeypatch)
    failed = measured_peaks._path(CARD).with_suffix(".failed")
    assert failed.read_text().strip()
    assert measured_peaks.get_or_measure(CARD, place(tmp_path), held) is None
    assert measured_peaks.cached(CARD) is None
    assert list(measured_peaks.evidence(None, CARD, target())) == []


def test_evaluation_on_a_card_that_allows_one_process_reads_peaks_only_from_the_cache(
        tmp_path: Path, held: DeviceLock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_sources, "sharing_mode", lambda card: SharingMode(
        one_process=True))
    trees = Trees(candidate="", incumbent="", reference="")
    settings = Settings(scratch=str(tmp_path))
    one_process = Evaluation(target(language="python"), trees, CARD, settings, None, None)
    with one_process.session:
        peaks = partial(device_limits.peaks_of, one_process.session, held, lambda: None)
        assert peaks() is None  # nothing was measured, so no failure was recorded
        assert not (tmp_path / "cache").exists()
        path = measured_peaks._path(CARD)
        path.parent.mkdir(parents=True)
        path.write_bytes(to_json(H200))
        assert peaks() == H200
        assert device_limits.ceilings_of(one_process.session) == ceilings.of_gpu(
            CARD, one_process.target)


def test_rates_that_are_not_positive_and_finite_are_refused() -> None:
    for field in ({"copy_gb_per_s": 0.0}, {"tflops": {"bf16": float("inf")}}):
        with pytest.raises(ValueError, match="positive"):
            replace(H200, **field)
    with pytest.raises(ConvertError):
        from_json(to_json({"card": "x", "torch": "y", "copy_gb_per_s": -1.0}), GpuCeilings)


@pytest.mark.gpu
def test_verdict_measures_its_card_once(tmp_path: Path,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    card = next(card for card in inventory.inventory() if card.kind != "cpu" and not card.unusable)
    task = target(classes=(ConfigClass(name="big", shape={"n": 1 << 26}),))
    quick = Plan(looks=(2,), alpha=0.05)
    first = judge(tmp_path / "first", DOUBLE + "# other\n", of=task, device=card.id, plan=quick)
    found = measured_peaks.cached(card)
    lines = [fact.detail for fact in first.evidence if fact.kind == "ceiling"]
    print(found, *lines, sep="\n")
    assert found is not None and {"bf16", "fp16", "fp32"} <= found.tflops.keys(), found
    published = datasheets.find(card.name)
    if published is not None:
        assert 0.5 < found.copy_gb_per_s / published.gb_per_s < 1.02
        assert 0.3 < found.tflops["bf16"] / published.bf16 < 1.02 * published.over
    assert len(lines) == 2 and "copy" in lines[0] and "products" in lines[1]
    again = judge(tmp_path / "again", DOUBLE + "# other\n", of=task, device=card.id, plan=quick)
    assert measured_peaks.cached(card) == found
    assert [fact.detail for fact in again.evidence if fact.kind == "ceiling"] == lines


def product(dtype: str = "bfloat16", flops: int = 0, moved: int = 0) -> Target:
    return target(dtype=dtype, flops=flops, bytes=moved)


@pytest.mark.parametrize(("of", "lines"), [
    (product(), ["copy 4.2 TB/s measured, 88% of the published 4.8 TB/s",
                 "bf16 products 740 TFLOP/s measured, 75% of the published 990 TFLOP/s"]),
    (product("float64"), ["copy 4.2 TB/s measured, 88% of the published 4.8 TB/s"]),
])
def test_evidence_names_the_measured_rates_of_the_targets_precision(
        of: Target, lines: list[str]) -> None:
    assert [fact.detail for fact in measured_peaks.evidence(H200, CARD, of)] == lines
    unknown = [fact.detail
               for fact in measured_peaks.evidence(H200, replace(CARD, name="NVIDIA X"), of)]
    assert len(unknown) == len(lines) and not any("published" in line for line in unknown)


def test_kopt_gpus_shows_cached_peaks_and_measures_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The engine is not on every machine with a card.
    from tests.support.programs.command_line import answer, kopt

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    listed = answer(kopt("gpus", "--json"))["devices"]
    assert all(card["ceilings"] is None for card in listed) and not list(tmp_path.iterdir())
    path = measured_peaks._path(inventory.find("cpu"))
    path.parent.mkdir(parents=True)
    path.write_bytes(to_json(H200))
    assert answer(kopt("gpus", "--json"))["devices"][0]["ceilings"]["copy_gb_per_s"] == 4200.0
    assert "measured: copy 4.2 TB/s, bf16 740 TFLOP/s" in kopt("gpus").stdout
