"""Published peaks of GPUs, by the name that the vendor's tool gives: data, and where it is from.

Bandwidth in GB/s, matrix and vector rates in TFLOP/s without sparsity. Where a datasheet has
only the rate with sparsity, half of it stands here. `cache` is the last-level cache in MB and its
rate in GB/s: NVIDIA's is 64 bytes read and 64 written per clock and multiprocessor at the highest
clock, which no kernel can pass; AMD's is the published peak.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Card:
    """One model of card. A rate of None is not published, and bounds nothing."""

    pattern: str
    gb_per_s: float
    fp32: float
    bf16: float
    tf32: float | None
    fp64: float
    int8: float | None
    cache_mb: float
    cache_gb_per_s: float
    source: str

    def peak(self, dtypes: frozenset[str]) -> float | None:
        """Return the rate (TFLOP/s) that no kernel over these dtypes can pass.

        float32 counts at the TF32 rate: a product split over several TF32 or bf16 products has
        the accuracy of float32 and can pass the plain float32 rate.
        """
        rates = {"float64": max(self.fp64, self.fp32), "float16": self.bf16, "bfloat16": self.bf16,
                 "float32": max(self.tf32 or 0.0, self.fp32), "int8": self.int8,
                 "uint8": self.int8}
        known = [rates[dtype] for dtype in dtypes if dtype in rates]
        if not known or None in known:
            return None
        return max(rate for rate in known if rate is not None)


def _on_chip(multiprocessors: int, clock_mhz: float) -> float:
    return multiprocessors * 128 * clock_mhz / 1e3


_A100 = "NVIDIA A100 datasheet, 2021 (nvidia-a100-datasheet-nvidia-us-2188504)"
_H100 = "NVIDIA H100 datasheet, 2024 (h100-datasheet-2287922); dense rates are half of the sparse"
_H200 = "NVIDIA H200 datasheet, 2024 (hpc-datasheet-sc23-h200); dense rates are half of the sparse"

CARDS: tuple[Card, ...] = (
    Card(pattern=r"NVIDIA H200 NVL", gb_per_s=4800, fp32=60, tf32=417.5, bf16=835.5, fp64=60,
         int8=1670.5, cache_mb=60, cache_gb_per_s=_on_chip(132, 1980), source=_H200),
    Card(pattern=r"NVIDIA H200", gb_per_s=4800, fp32=67, tf32=494.5, bf16=989.5, fp64=67,
         int8=1979, cache_mb=60, cache_gb_per_s=_on_chip(132, 1980), source=_H200),
    Card(pattern=r"NVIDIA H100 NVL", gb_per_s=3900, fp32=60, tf32=417.5, bf16=835.5, fp64=60,
         int8=1670.5, cache_mb=60, cache_gb_per_s=_on_chip(132, 1980), source=_H100),
    Card(pattern=r"NVIDIA H100 80GB HBM3", gb_per_s=3350, fp32=67, tf32=494.5, bf16=989.5, fp64=67,
         int8=1979, cache_mb=50, cache_gb_per_s=_on_chip(132, 1980), source=_H100),
    Card(pattern=r"NVIDIA H100 PCIe", gb_per_s=2039, fp32=51, tf32=378, bf16=756, fp64=51,
         int8=1513, cache_mb=50, cache_gb_per_s=_on_chip(114, 1755),
         source="NVIDIA H100 PCIe product brief PB-11133"),
    Card(pattern=r"NVIDIA A100-SXM4-80GB", gb_per_s=2039, fp32=19.5, tf32=156, bf16=312, fp64=19.5,
         int8=624, cache_mb=40, cache_gb_per_s=_on_chip(108, 1410), source=_A100),
    Card(pattern=r"NVIDIA A100[ -](?:80GB PCIe|PCIE-80GB)", gb_per_s=1935, fp32=19.5, tf32=156,
         bf16=312, fp64=19.5, int8=624, cache_mb=40, cache_gb_per_s=_on_chip(108, 1410),
         source=_A100),
    Card(pattern=r"NVIDIA A100-(?:SXM4|PCIE)-40GB", gb_per_s=1555, fp32=19.5, tf32=156, bf16=312,
         fp64=19.5, int8=624, cache_mb=40, cache_gb_per_s=_on_chip(108, 1410),
         source="NVIDIA A100 Tensor Core GPU architecture whitepaper v1.0, 2020"),
    Card(pattern=r"NVIDIA L40S", gb_per_s=864, fp32=91.6, tf32=183.2, bf16=366.5, fp64=91.6,
         int8=733, cache_mb=96, cache_gb_per_s=_on_chip(142, 2520),
         source="NVIDIA L40S datasheet, 2023 (l40s-datasheet-28413)"),
    Card(pattern=r"NVIDIA B200", gb_per_s=8000, fp32=80, tf32=1250, bf16=2500, fp64=80, int8=5000,
         cache_mb=126, cache_gb_per_s=_on_chip(148, 1965),
         source="NVIDIA Blackwell architecture technical brief, 2024; the higher of its variants"),
    Card(pattern=r"AMD Instinct MI300X(?: OAM| HF)?", gb_per_s=5300, fp32=163.4, tf32=653.7,
         bf16=1307.4, fp64=163.4, int8=2614.9, cache_mb=256, cache_gb_per_s=34400,
         source="AMD Instinct MI300X data sheet, 2023; cache: AMD CDNA 3 white paper (L2, 2048 "
                "bytes per clock and die)"),
)


def find(name: str) -> Card | None:
    """Return the card of exactly this name, or None: a near match would be a wrong number."""
    return next((card for card in CARDS if re.fullmatch(card.pattern, name.strip())), None)
