"""Published facts of GPUs: peak rates of cards, and limits of a kernel on their architectures.

The numbers and their sources are in `knowledge/hardware`, one file per architecture; the pages of
`knowledge/` show the same numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import EnvironmentFault
from harness.formats.json_codec import convert

HARDWARE = Path(__file__).resolve().parents[2] / "knowledge" / "hardware"
PARTITIONS = 4
LOAD_NS = 700.0
"""Assumed latency of a load from a busy card's memory; 500 on an idle card."""
RATES = ("fp64", "fp32", "tf32", "bf16", "fp8", "int8")


@dataclass(frozen=True, kw_only=True)
class MatrixRate:
    """A matrix instruction, and the dense operations per clock of a multiprocessor that issues it.
    """

    instruction: str
    shape: str
    """Rows, columns and depth of one instruction: `m16n8k16`."""
    dtype: str
    flops_per_clock: int

    @property
    def clocks(self) -> int | None:
        """Clocks that one instruction occupies a partition's matrix unit; None for several shapes.
        """
        sizes = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", self.shape)
        return None if sizes is None else 2 * math.prod(map(int, sizes.groups())) * PARTITIONS \
            // self.flops_per_clock


@dataclass(frozen=True, kw_only=True)
class Arch:
    """Limits of one architecture; sizes in bytes, counts per multiprocessor (compute unit)."""

    name: str
    generation: str
    source: str
    backend: str
    number: str
    warp: int
    shared_per_block: int
    shared: int
    warps: int
    blocks: int
    multiprocessors: int
    registers: int = 65536
    threads_per_block: int = 1024
    registers_per_thread: int = 255
    register_unit: int = 256
    """A warp gets registers in multiples of this; on AMD, lots of 8 registers times 64 lanes."""
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    threads_x: int | None = None
    """Maximum number of threads along the first dimension of a grid; None means no such limit."""
    static_shared: int = 49152
    """Shared memory that a block may use without asking for more (CUDA)."""
    cluster: int = 1
    """Maximum number of blocks in a cluster; 1 without cluster support."""
    near: int = 0
    """Bytes of a multiprocessor's data cache (L1); on NVIDIA, shared memory is part of it."""
    reserved_shared: int = 0
    """Bytes of shared memory that CUDA reserves for each resident block."""
    banks: int = 32
    """Banks of shared memory, of 4 bytes each."""
    shared_bytes_per_clock: int = 128
    tensor_memory: int = 0
    """Bytes of memory for accumulators beside the registers."""
    exponentials_per_clock: int = 0
    """Exponentials that special units start each clock; 0 is unknown."""
    dies: int = 1
    die_cache: int = 0
    """Bytes of each die's own cache (L2), which lies before the last-level cache."""
    matrix: tuple[MatrixRate, ...] = ()
    matrix_source: str = ""


@dataclass(frozen=True, kw_only=True)
class CardModel:
    """One model of card, as the framework sees it: one device. A rate of None bounds nothing.

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
        """Return the rate (TFLOP/s) that no kernel over these dtypes can exceed; None if unknown.

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
    """Return all known cards.

    An AMD card's rates are its matrix instructions' rates per clock, times compute units and clock;
    they equal those of the data sheets.
    """
    return tuple(card for arch in archs() for card in _cards_of(arch))


def _cards_of(arch: Arch) -> Iterator[CardModel]:
    rates: dict[str, int] = {}
    if arch.backend == "hip":
        rates = {dtype: max((row.flops_per_clock for row in arch.matrix if row.dtype == dtype),
                            default=0) for dtype in RATES}
    for fields in _tables()[arch.name]["cards"]:
        per_second = fields["multiprocessors"] * fields["clock_mhz"] / 1e6
        computed = {dtype: rate * per_second for dtype, rate in rates.items() if rate}
        yield convert({**computed, **fields, "arch": arch.name}, CardModel, strict=True)


@cache
def archs() -> tuple[Arch, ...]:
    """Return all known architectures."""
    return tuple(convert({**table["limits"], "name": name, "matrix": table.get("matrix", [])},
                         Arch, strict=True) for name, table in _tables().items())


@cache
def _tables() -> dict[str, Any]:
    """Return the tables by architecture, older ones of a vendor first.

    Raises EnvironmentFault if there are none: verdicts would silently lack their floors.
    """
    import yaml  # loaded when a number is needed

    paths = sorted(HARDWARE.glob("*.yaml"), key=lambda path: (len(path.stem), path))
    if not paths:
        raise EnvironmentFault("the hardware tables are missing", where=str(HARDWARE),
                               fix="copy knowledge/ beside harness/")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # C parses ten times faster
    return {path.stem: yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
            for path in paths}


def find(name: str) -> CardModel | None:
    """Return the card of exactly this name or None: a near match would give wrong numbers."""
    return next((card for card in cards() if re.fullmatch(card.pattern, name.strip())), None)


def find_by_short_name(short: str) -> CardModel | None:
    """Return a card by its short name ("h200", "RTX 4090"), for predictions without that card."""
    word = re.sub(r"[\s_-]", "", short.lower())
    return next((card for card in cards() if card.name.replace("-", "") == word), None)


def find_arch(name: str) -> Arch | None:
    """Return an architecture by a name such as "sm_90" or "gfx942:sramecc+:xnack-"."""
    base = name.partition(":")[0]
    base = base.removesuffix("a") if name.startswith("sm_") else base
    return next((arch for arch in archs() if arch.name == base), None)


def resident_warps(arch: Arch, registers: int) -> int:
    """Return how many warps the registers allow; a warp's registers lie in one of 4 partitions."""
    unit = arch.register_unit
    per_warp = -(-max(registers, 1) * arch.warp // unit) * unit
    return PARTITIONS * (arch.registers // PARTITIONS // per_warp)


def occupancy(arch: Arch, *, registers: int | None, shared_bytes: int, threads: int,
              waves: int | None = None) -> tuple[float, str] | None:
    """Return the share of resident warps and what limits it: None if unknown, 0 if no block fits.

    `waves` (0 to 8 per SIMD) is the AMD compiler's figure: what the registers allow, ignoring the
    shared memory that Triton requests at launch.
    """
    if shared_bytes > arch.shared_per_block:
        return 0.0, "shared memory"
    per_block = max(1, -(-threads // arch.warp))
    if arch.backend == "hip":
        if waves is None:
            return None
        by_registers = min(1.0, waves * PARTITIONS / arch.warps)
        by_shared = arch.shared // shared_bytes * per_block / arch.warps if shared_bytes else 1.0
        limiter = "registers" if by_registers <= by_shared else "shared memory"
        share = min(by_registers, by_shared)
        return share, "" if share > 0.99 else limiter
    if registers is None:
        return None
    fits = {"registers": resident_warps(arch, registers) // per_block,
            "shared memory": arch.shared // (-(-shared_bytes // 128) * 128
                                             + arch.reserved_shared),
            "blocks": arch.blocks, "warps": arch.warps // per_block}
    limiter, blocks = min(fits.items(), key=lambda item: item[1])
    share = blocks * per_block / arch.warps
    return share, "" if share > 0.99 else limiter
