"""Published peak rates of GPUs, by the name that the vendor's tool reports: `datasheets.toml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.formats.json_codec import convert


@dataclass(frozen=True, kw_only=True)
class CardModel:
    """One model of card, as the framework sees it: one device. A rate of None is no bound.

    Rates are in TFLOP/s. `fp16` is the rate with float16 accumulation where that is faster than
    `bf16` with float32 accumulation. `cache_mb` is the last-level cache in MiB. `clock_mhz` is the
    clock of the published rates, `highest_clock_mhz` is given where the card can exceed it.
    """

    pattern: str
    name: str
    arch: str
    multiprocessors: int
    clock_mhz: float
    gb_per_s: float
    fp32: float
    bf16: float
    cache_mb: float
    cache_gb_per_s: float
    source: str
    highest_clock_mhz: float | None = None
    fp64: float | None = None
    tf32: float | None = None
    fp16: float | None = None
    fp8: float | None = None
    int8: float | None = None

    @property
    def cache_bytes(self) -> float:
        return self.cache_mb * 1048576

    @property
    def over(self) -> float:
        """The ratio of the highest clock to the clock of the published rates."""
        return (self.highest_clock_mhz or self.clock_mhz) / self.clock_mhz

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


@cache
def cards() -> tuple[CardModel, ...]:
    """Return all known cards, from `datasheets.toml`."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return convert(tables["card"], tuple[CardModel, ...], strict=True)


def find(name: str) -> CardModel | None:
    """Return the card of exactly this name or None: a near match would give wrong numbers."""
    return next((card for card in cards() if re.fullmatch(card.pattern, name.strip())), None)


def find_by_short_name(short: str) -> CardModel | None:
    """Return a card by its short name ("h200", "RTX 4090"), for predictions without that card."""
    word = re.sub(r"[\s_-]", "", short.lower())
    return next((card for card in cards() if card.name.replace("-", "") == word), None)
