"""Known cards have ceilings that match their data sheets; unknown cards have none."""

from __future__ import annotations

import pytest

from harness.devices import datasheets
from harness.devices.device import Device
from harness.roofline import ceilings
from harness.tasks.target import Arg, ConfigClass
from harness.tasks.task_file import load
from tests.support.kernels.kernel_case import target
from tests.support.paths import EXAMPLES


def test_architectures_are_found_by_the_names_that_compilers_use() -> None:
    assert datasheets.find_arch("gfx942:sramecc+:xnack-") is datasheets.find_arch("gfx942")
    assert datasheets.find_arch("sm_90a") is datasheets.find_arch("sm_90")
    assert datasheets.find_arch("") is None and datasheets.find_arch("gfx1100") is None


def card(name: str) -> Device:
    return Device(id="cuda:0", kind="nvidia", name=name, uuid="GPU-1")


@pytest.mark.parametrize("name", [
    "NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe",
    "NVIDIA H100 NVL", "NVIDIA GH200 480GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB",
    "NVIDIA A100 80GB PCIe", "NVIDIA A100-PCIE-40GB", "NVIDIA A30", "NVIDIA A10",
    "NVIDIA RTX A6000", "NVIDIA L4", "NVIDIA L40S", "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 5090", "NVIDIA B200", "AMD Instinct MI210",
    "AMD Instinct MI250X", "AMD INSTINCT MI250X (MCM) OAM AC MBA", "AMD Instinct MI300A",
    "AMD Instinct MI300X", "AMD Instinct MI300X OAM", "AMD Instinct MI325X",
    "AMD Instinct MI350X", "AMD Instinct MI355X"])
def test_known_cards_have_ceilings(name: str) -> None:
    task = load(EXAMPLES / "softmax_triton" / "task.yaml")
    limits = ceilings.of_gpu(card(name), task)
    assert limits is not None
    bound = ceilings.floor_us(limits, task, task.config_class("square"))
    moved = 2 * 2 * 32768 * 4096
    assert 0 < bound <= moved / limits.copy_gb_per_s / 1e3


@pytest.mark.parametrize("name", ["", "NVIDIA H200 Super", "GeForce RTX 4090", "Tesla T4",
                                  "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA L40",
                                  "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU",
                                  "NVIDIA A100X", "AMD Instinct MI250", "AMD Instinct MI300"])
def test_unknown_card_has_no_ceilings(name: str) -> None:
    assert ceilings.of_gpu(card(name), target()) is None


def test_peak_depends_on_the_dtypes() -> None:
    h200 = datasheets.find("NVIDIA H200")
    assert h200 is not None
    assert h200.peak(frozenset({"bfloat16"})) == 989.5
    assert h200.peak(frozenset({"float32"})) == 494.5
    assert h200.peak(frozenset({"float32", "float16"})) == 989.5
    assert h200.peak(frozenset({"int64"})) is None
    whole = target(args=(Arg(name="x", dtype="int64", shape=("n",)),
                         Arg(name="out", dtype="int64", shape=("n",), role="output")),
                   classes=(ConfigClass(name="big", shape={"n": 1 << 28}),), flops="n*1000000")
    limits = ceilings.of_gpu(card("NVIDIA H200"), whole)
    assert limits is not None
    bound = ceilings.floor_us(limits, whole, whole.classes[0])
    assert bound == pytest.approx((2 * 8 * 2**28 - 60 * 2**20) / 4800e3)


@pytest.mark.parametrize(("name", "dtype", "loose", "tflops"), [
    ("h200", "float32", True, 989.5),          # one float16 product is as exact as a TF32 one
    ("h200", "float8_e4m3fn", False, 1979),
    ("a100", "float8_e4m3fn", False, None),    # has no such units: nothing published
    ("a100", "float64", False, 19.5), ("l40s", "float64", False, 91.6),
    ("rtx4090", "float16", False, 330.3 * 3105 / 2520),  # with float16 sums, at its highest clock
    ("rtx4090", "bfloat16", False, 165.2 * 3105 / 2520),
    ("rtx5090", "int8", False, 838 * 3090 / 2407),
    ("l4", "bfloat16", False, 121), ("a10", "float32", False, 62.5),
    ("mi250x", "float16", False, 383.0 / 2),   # one die of two
    ("mi250x", "float64", False, 95.7 / 2), ("mi210", "bfloat16", False, 181.0),
    ("mi300x", "bfloat16", False, 1307.4), ("mi300a", "float32", False, 490.3),
    ("mi300x", "int8", False, 2614.9), ("mi325x", "float64", False, 163.4),
    ("mi355x", "float16", False, 2516.6), ("mi355x", "float8_e5m2", False, 5033.2),
    ("mi350x", "bfloat16", False, 2306.9),
    ("mi355x", "float32", False, 2516.6 / 3),  # no TF32 there, but three bfloat16 products
])
def test_peaks_match_the_data_sheets(name: str, dtype: str, loose: bool,
                                     tflops: float | None) -> None:
    card = datasheets.find_by_short_name(name)
    assert card is not None
    peak = card.peak(frozenset({dtype}), loose=loose)
    assert peak is None if tflops is None else peak == pytest.approx(tflops, rel=1e-3)


def test_every_card_has_an_architecture_and_a_unique_name() -> None:
    assert len({sheet.name for sheet in datasheets.cards()}) == len(datasheets.cards()) >= 25
    for sheet in datasheets.cards():
        known = datasheets.find_arch(sheet.arch)
        assert (
            known is not None
            and sheet.source
            and datasheets.find_by_short_name(sheet.name) is sheet
        )
        assert sheet.multiprocessors <= known.multiprocessors or sheet.arch == "gfx90a"
        assert sheet.bf16 >= sheet.fp32 * 0.9 and sheet.cache_gb_per_s > sheet.gb_per_s
    assert datasheets.find_by_short_name("RTX 4090") is datasheets.find("NVIDIA GeForce RTX 4090")
    assert datasheets.find_by_short_name("H100_PCIe") is datasheets.find("NVIDIA H100 PCIe")
    assert datasheets.find_by_short_name("t4") is None and datasheets.find_by_short_name("") is None


def test_floor_depends_on_the_precision_that_the_task_allows() -> None:
    exact = target(flops="n*100000000")
    bounds = [ceilings.floor_us(ceilings.of_card(h200, task), task, task.classes[0])
              for h200 in [datasheets.find("NVIDIA H200")] if h200 is not None
              for task in (exact, target(flops="n*100000000", precision="tf32"),
                           target(flops="n*100000000", tolerance=1e-2))]
    assert bounds[1] == bounds[2] == pytest.approx(bounds[0] / 2, rel=1e-2)


def test_floor_of_data_that_fit_the_cache_follows_from_the_caches_rate() -> None:
    limits = ceilings.of_gpu(card("NVIDIA H200"), target())
    assert limits is not None
    assert limits.floor_us(0.0, 33e6) == pytest.approx(33e6 / (132 * 128 * 1980e6) * 1e6)
