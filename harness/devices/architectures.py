"""Per-architecture limits of a kernel (registers, shared memory, warps), and its occupancy.

The limits and their sources are in `architectures.toml`.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.formats.json_codec import convert

PARTITIONS = 4
RESERVED_SHARED = 1024
"""Bytes that CUDA reserves for each resident block, from compute capability 8.0 on."""


@dataclass(frozen=True, kw_only=True)
class Arch:
    """Limits of one architecture; sizes in bytes, counts per multiprocessor (compute unit)."""

    name: str
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
    cluster: int = 1
    """Maximum number of blocks in a cluster; 1 without cluster support."""
    near: int = 0
    """Bytes of a multiprocessor's data cache (L1); on NVIDIA, shared memory is part of it."""


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """The share of a multiprocessor's warps that can be resident, and the limiting resource."""

    share: float
    limiter: str


@cache
def all_archs() -> tuple[Arch, ...]:
    """Return all known architectures, from `architectures.toml`."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return convert(tables["arch"], tuple[Arch, ...], strict=True)


def find(name: str) -> Arch | None:
    """Return an architecture by a name such as "sm_90" or "gfx942:sramecc+:xnack-"."""
    base = name.partition(":")[0]
    base = base.removesuffix("a") if name.startswith("sm_") else base
    return next((arch for arch in all_archs() if arch.name == base), None)


def resident_warps(arch: Arch, registers: int) -> int:
    """Return how many warps the registers allow; a warp's come from one of four partitions."""
    unit = arch.register_unit
    per_warp = -(-max(registers, 1) * arch.warp // unit) * unit
    return PARTITIONS * (arch.registers // PARTITIONS // per_warp)


def occupancy(arch: Arch, *, registers: int | None, shared_bytes: int, threads: int,
              waves: int | None = None) -> Occupancy | None:
    """Return a kernel's occupancy: None if unknown, a share of 0 if not even one block fits.

    `waves` (0 to 8 per SIMD) is the AMD compiler's figure: what the registers allow, ignoring the
    shared memory that Triton requests at launch.
    """
    if shared_bytes > arch.shared_per_block:
        return Occupancy(share=0.0, limiter="shared memory")
    per_block = max(1, -(-threads // arch.warp))
    if arch.backend == "hip":
        if waves is None:
            return None
        by_registers = min(1.0, waves / 8)
        by_shared = arch.shared // shared_bytes * per_block / arch.warps if shared_bytes else 1.0
        limiter = "registers" if by_registers <= by_shared else "shared memory"
        share = min(by_registers, by_shared)
        return Occupancy(share=share, limiter="" if share > 0.99 else limiter)
    if registers is None:
        return None
    fits = {"registers": resident_warps(arch, registers) // per_block,
            "shared memory": arch.shared // (-(-shared_bytes // 128) * 128 + RESERVED_SHARED),
            "blocks": arch.blocks, "warps": arch.warps // per_block}
    limiter, blocks = min(fits.items(), key=lambda item: item[1])
    share = blocks * per_block / arch.warps
    return Occupancy(share=share, limiter="" if share > 0.99 else limiter)
