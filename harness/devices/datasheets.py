"""Published peak rates of GPUs with their sources, by the name that the vendor's tool reports.

Bandwidth is in GB/s; matrix and vector rates are in TFLOP/s without sparsity, or half the sparse
rate where a data sheet has only that. `cache_mb` is the last-level cache in MiB and
`cache_gb_per_s` its rate: for NVIDIA 64 bytes read and 64 written per clock and multiprocessor at
the highest clock, an upper bound for any kernel; for AMD the published peak. AMD's compute rates
are operations per clock and compute unit (CDNA 2, 3 and 4 white papers) times units and clock,
which matches the data sheets. Cards with uncertain numbers are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CardModel:
    """One model of card, as the framework sees it: one device. A rate of None is no bound.

    `fp16` is the rate with float16 accumulation where that is faster than `bf16` with float32
    accumulation. `over` is the ratio of the highest clock to the clock of the published rates.
    """

    pattern: str
    name: str
    arch: str
    multiprocessors: int
    clock_mhz: float
    gb_per_s: float
    fp32: float
    bf16: float
    tf32: float | None
    fp64: float | None
    int8: float | None
    cache_mb: float
    cache_gb_per_s: float
    source: str
    fp16: float | None = None
    fp8: float | None = None
    over: float = 1.0

    @property
    def cache_bytes(self) -> float:
        return self.cache_mb * 1048576

    def peak(self, dtypes: frozenset[str], *, loose: bool = False) -> float | None:
        """Return the rate (TFLOP/s) that no kernel over these dtypes can exceed.

        float32 counts at the TF32 rate or a third of the bfloat16 rate: a product split into
        several narrow products has the accuracy of float32 and can exceed the plain float32 rate.
        `loose` says that the task allows float32 the accuracy of one narrow product.
        """
        half = max(self.bf16, self.fp16 or 0.0)
        single = max(self.tf32 or 0.0, self.fp32, self.bf16 / 3, half if loose else 0.0)
        rates = {"float64": max(self.fp64 or 0.0, self.fp32), "float16": half,
                 "bfloat16": self.bf16, "float32": single, "int8": self.int8, "uint8": self.int8,
                 "float8_e4m3fn": self.fp8, "float8_e5m2": self.fp8}
        known = [rates[dtype] for dtype in dtypes if dtype in rates]
        if not known or None in known:
            return None
        return self.over * max(rate for rate in known if rate is not None)


def _on_chip(multiprocessors: int, clock_mhz: float) -> float:
    return multiprocessors * 128 * clock_mhz / 1e3


_A100 = "NVIDIA A100 datasheet, 2021 (nvidia-a100-datasheet-nvidia-us-2188504)"
_H100 = "NVIDIA H100 datasheet, 2024 (h100-datasheet-2287922); dense rates are half of the sparse"
_H200 = "NVIDIA H200 datasheet, 2024 (hpc-datasheet-sc23-h200); dense rates are half of the sparse"
_GA102 = "NVIDIA Ampere GA102 GPU architecture whitepaper v2.1, appendix"


def _hopper(pattern: str, name: str, source: str, *, gb_per_s: float, cache_mb: float = 60,
            pcie: bool = False) -> CardModel:
    clock_mhz, fp32, tf32, bf16, int8 = \
        (1785, 60, 417.5, 835.5, 1670.5) if pcie else (1980, 67, 494.5, 989.5, 1979)
    return CardModel(
        pattern=pattern, name=name, arch="sm_90", multiprocessors=132, clock_mhz=clock_mhz,
        gb_per_s=gb_per_s, fp32=fp32, tf32=tf32, bf16=bf16, fp64=fp32, int8=int8, fp8=int8,
        cache_mb=cache_mb, cache_gb_per_s=_on_chip(132, 1980), source=source)


def _a100(pattern: str, name: str, gb_per_s: float, source: str = _A100) -> CardModel:
    return CardModel(
        pattern=pattern, name=name, arch="sm_80", multiprocessors=108, clock_mhz=1410,
        gb_per_s=gb_per_s, fp32=19.5, tf32=156, bf16=312, fp64=19.5, int8=624, cache_mb=40,
        cache_gb_per_s=_on_chip(108, 1410), source=source)


def _amd(pattern: str, name: str, arch: str, source: str, *, units: int, clock_mhz: float,
         gb_per_s: float, fp16_per_clock: int, wide_per_clock: int, dies: int,
         cache_mb: float) -> CardModel:
    """Return a CDNA 2 to 4 card; rates per clock count the operations of one compute unit."""
    rate = units * clock_mhz / 1e6
    has_fp8 = arch != "gfx90a"
    return CardModel(
        pattern=pattern, name=name, arch=arch, multiprocessors=units, clock_mhz=clock_mhz,
        gb_per_s=gb_per_s, fp32=wide_per_clock * rate, bf16=fp16_per_clock * rate,
        tf32=1024 * rate if arch == "gfx942" else None,
        fp64=(128 if arch == "gfx950" else 256) * rate,
        int8=fp16_per_clock * rate * (2 if has_fp8 else 1),
        fp8=2 * fp16_per_clock * rate if has_fp8 else None, cache_mb=cache_mb,
        cache_gb_per_s=dies * (2048 if has_fp8 else 4096) * clock_mhz / 1e3, source=source)


CARDS: tuple[CardModel, ...] = (
    _hopper(r"NVIDIA H200 NVL", "h200-nvl", _H200, gb_per_s=4800, pcie=True),
    _hopper(r"NVIDIA H200", "h200", _H200, gb_per_s=4800),
    _hopper(
        r"NVIDIA GH200 480GB", "gh200", "NVIDIA GH200 Grace Hopper datasheet, 2024 (96 GB)",
        gb_per_s=4000),
    _hopper(r"NVIDIA H100 NVL", "h100-nvl", _H100, gb_per_s=3900, pcie=True),
    _hopper(r"NVIDIA H100 80GB HBM3", "h100", _H100, gb_per_s=3350, cache_mb=50),
    CardModel(
        pattern=r"NVIDIA H100 PCIe", name="h100-pcie", arch="sm_90", multiprocessors=114,
        clock_mhz=1755, gb_per_s=2039, fp32=51, tf32=378, bf16=756, fp64=51, int8=1513, fp8=1513,
        cache_mb=50, cache_gb_per_s=_on_chip(114, 1755),
        source="NVIDIA H100 PCIe product brief PB-11133"),
    _a100(r"NVIDIA A100-SXM4-80GB", "a100", 2039),
    _a100(r"NVIDIA A100[ -](?:80GB PCIe|PCIE-80GB)", "a100-pcie", 1935),
    _a100(
        r"NVIDIA A100-(?:SXM4|PCIE)-40GB", "a100-40gb", 1555,
        "NVIDIA A100 Tensor Core GPU architecture whitepaper v1.0, 2020"),
    CardModel(
        pattern=r"NVIDIA A30", name="a30", arch="sm_80", multiprocessors=56, clock_mhz=1440,
        gb_per_s=933, fp32=10.3, tf32=82, bf16=165, fp64=10.3, int8=330, cache_mb=24,
        cache_gb_per_s=_on_chip(56, 1440), source="NVIDIA A30 datasheet, 2021"),
    CardModel(
        pattern=r"NVIDIA A10", name="a10", arch="sm_86", multiprocessors=72, clock_mhz=1695,
        gb_per_s=600, fp32=31.2, tf32=62.5, bf16=125, fp64=None, int8=250, cache_mb=6,
        cache_gb_per_s=_on_chip(72, 1695), source="NVIDIA A10 datasheet, 2021"),
    CardModel(
        pattern=r"NVIDIA RTX A6000", name="a6000", arch="sm_86", multiprocessors=84,
        clock_mhz=1800, over=2100 / 1800, gb_per_s=768, fp32=38.7, tf32=77.4, bf16=154.8,
        fp64=None, int8=309.7, cache_mb=6, cache_gb_per_s=_on_chip(84, 2100), source=_GA102),
    CardModel(
        pattern=r"NVIDIA GeForce RTX 3090", name="rtx3090", arch="sm_86", multiprocessors=82,
        clock_mhz=1695, over=2100 / 1695, gb_per_s=936, fp32=35.6, tf32=35.6, bf16=71, fp16=142,
        fp64=None, int8=284, cache_mb=6, cache_gb_per_s=_on_chip(82, 2100), source=_GA102),
    CardModel(
        pattern=r"NVIDIA GeForce RTX 4090", name="rtx4090", arch="sm_89", multiprocessors=128,
        clock_mhz=2520, over=3105 / 2520, gb_per_s=1008, fp32=82.6, tf32=82.6, bf16=165.2,
        fp16=330.3, fp64=None, int8=660.6, fp8=660.6, cache_mb=72,
        cache_gb_per_s=_on_chip(128, 3105),
        source="NVIDIA Ada GPU architecture whitepaper v2.01, appendix A"),
    CardModel(
        pattern=r"NVIDIA GeForce RTX 5090", name="rtx5090", arch="sm_120", multiprocessors=170,
        clock_mhz=2407, over=3090 / 2407, gb_per_s=1792, fp32=104.8, tf32=104.8, bf16=209.5,
        fp16=419, fp64=None, int8=838, fp8=838, cache_mb=96, cache_gb_per_s=_on_chip(170, 3090),
        source="NVIDIA RTX Blackwell GPU architecture whitepaper v1.1, appendix A"),
    CardModel(
        pattern=r"NVIDIA L4", name="l4", arch="sm_89", multiprocessors=58, clock_mhz=2040,
        gb_per_s=300, fp32=30.3, tf32=60, bf16=121, fp64=None, int8=242.5, fp8=242.5,
        cache_mb=48, cache_gb_per_s=_on_chip(58, 2040),
        source="NVIDIA L4 datasheet, 2023; dense rates are half of the sparse"),
    CardModel(
        pattern=r"NVIDIA L40S", name="l40s", arch="sm_89", multiprocessors=142, clock_mhz=2520,
        gb_per_s=864, fp32=91.6, tf32=183.2, bf16=366.5, fp64=None, int8=733, fp8=733,
        cache_mb=96, cache_gb_per_s=_on_chip(142, 2520),
        source="NVIDIA L40S datasheet, 2023 (l40s-datasheet-28413)"),
    CardModel(
        pattern=r"NVIDIA B200", name="b200", arch="sm_100", multiprocessors=148, clock_mhz=1965,
        gb_per_s=8000, fp32=80, tf32=1250, bf16=2500, fp64=40, int8=5000, fp8=5000, cache_mb=126,
        cache_gb_per_s=_on_chip(148, 1965),
        source="NVIDIA Blackwell architecture technical brief, 2024; the higher of its variants"),
    # ROCm shows each of the two dies of an MI250X as a device: half of the data sheet's rates.
    _amd(
        r"AMD (?:Instinct|INSTINCT) MI250X(?: \(MCM\) OAM AC MBA)?", "mi250x", "gfx90a",
        "AMD Instinct MI250X data sheet, 2021, half of it: one die; CDNA 2 white paper",
        units=110, clock_mhz=1700, gb_per_s=1638.4, fp16_per_clock=1024, wide_per_clock=256,
        dies=1, cache_mb=8),
    _amd(
        r"AMD Instinct MI210", "mi210", "gfx90a", "AMD Instinct MI210 data sheet, 2022",
        units=104, clock_mhz=1700, gb_per_s=1638.4, fp16_per_clock=1024, wide_per_clock=256,
        dies=1, cache_mb=8),
    _amd(
        r"AMD Instinct MI300X(?: OAM| HF)?", "mi300x", "gfx942",
        "AMD Instinct MI300X data sheet, 2023; CDNA 3 white paper", units=304, clock_mhz=2100,
        gb_per_s=5300, fp16_per_clock=2048, wide_per_clock=256, dies=8, cache_mb=256),
    _amd(
        r"AMD Instinct MI300A", "mi300a", "gfx942",
        "AMD Instinct MI300A data sheet, 2023; CDNA 3 white paper", units=228, clock_mhz=2100,
        gb_per_s=5300, fp16_per_clock=2048, wide_per_clock=256, dies=6, cache_mb=256),
    _amd(
        r"AMD Instinct MI325X(?: OAM)?", "mi325x", "gfx942",
        "AMD Instinct MI325X data sheet, 2024; CDNA 3 white paper", units=304, clock_mhz=2100,
        gb_per_s=6000, fp16_per_clock=2048, wide_per_clock=256, dies=8, cache_mb=256),
    _amd(
        r"AMD Instinct MI350X(?: OAM)?", "mi350x", "gfx950",
        "AMD Instinct MI350X data sheet, 2025; CDNA 4 white paper", units=256, clock_mhz=2200,
        gb_per_s=8000, fp16_per_clock=4096, wide_per_clock=256, dies=8, cache_mb=256),
    _amd(
        r"AMD Instinct MI355X(?: OAM)?", "mi355x", "gfx950",
        "AMD Instinct MI355X data sheet, 2025; CDNA 4 white paper", units=256, clock_mhz=2400,
        gb_per_s=8000, fp16_per_clock=4096, wide_per_clock=256, dies=8, cache_mb=256),
)


def find(name: str) -> CardModel | None:
    """Return the card of exactly this name or None: a near match would give wrong numbers."""
    return next((card for card in CARDS if re.fullmatch(card.pattern, name.strip())), None)


def find_by_short_name(short: str) -> CardModel | None:
    """Return a card by its short name ("h200", "RTX 4090"), for predictions without that card."""
    word = re.sub(r"[\s_-]", "", short.lower())
    return next((card for card in CARDS if card.name.replace("-", "") == word), None)
