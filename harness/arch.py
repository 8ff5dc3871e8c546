"""What GPU architectures give a kernel: registers, shared memory, warps; and how many fit.

NVIDIA: CUDA C++ programming guide 13.0, technical specifications per compute capability. AMD:
CDNA 2, 3 and 4 instruction set guides. Multiprocessors are those of the largest product.
"""

from __future__ import annotations

from dataclasses import dataclass

REGISTERS = 65536
PARTITIONS = 4
RESERVED_SHARED = 1024
"""Shared memory that CUDA keeps of every resident block, since compute capability 8.0."""


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
    registers: int = REGISTERS


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """The share of a multiprocessor's warps that can be resident, and what allows no more."""

    share: float
    limiter: str


def _nvidia(number: int, shared_kib: int, warps: int, blocks: int, multiprocessors: int) -> Arch:
    return Arch(name=f"sm_{number}", backend="cuda", number=str(number), warp=32,
                shared_per_block=(shared_kib - 1) << 10, shared=shared_kib << 10, warps=warps,
                blocks=blocks, multiprocessors=multiprocessors)


def _amd(number: str, shared_kib: int, multiprocessors: int) -> Arch:
    return Arch(name=number, backend="hip", number=number, warp=64, shared=shared_kib << 10,
                shared_per_block=shared_kib << 10, warps=32, blocks=16,
                multiprocessors=multiprocessors)


ARCHS: tuple[Arch, ...] = (
    _nvidia(80, 164, 64, 32, 108), _nvidia(86, 100, 48, 16, 84), _nvidia(89, 100, 48, 24, 142),
    _nvidia(90, 228, 64, 32, 132), _nvidia(100, 228, 64, 32, 148), _nvidia(120, 100, 48, 24, 188),
    _amd("gfx90a", 64, 104), _amd("gfx942", 64, 304), _amd("gfx950", 160, 256),
)


def find(name: str) -> Arch | None:
    """Return an architecture by a name such as "sm_90" or "gfx942:sramecc+:xnack-"."""
    wanted = name.partition(":")[0].removesuffix("a") if name.startswith("sm_") \
        else name.partition(":")[0]
    return next((arch for arch in ARCHS if arch.name == wanted), None)


def occupancy(arch: Arch, *, registers: int | None, shared_bytes: int, threads: int,
              waves: int | None = None) -> Occupancy | None:
    """Return how many warps fit, None where that is not known; 0 when not one block fits.

    `waves` is the AMD compiler's own figure, per SIMD of eight.
    """
    if shared_bytes > arch.shared_per_block:
        return Occupancy(share=0.0, limiter="shared memory")
    if arch.backend == "hip":
        return None if waves is None else Occupancy(
            share=min(1.0, waves / 8), limiter="registers or shared memory" if waves < 8 else "")
    if registers is None:
        return None
    per_block = -(-threads // arch.warp)
    per_warp = -(-max(registers, 1) * arch.warp // 256) * 256
    fits = {"registers": PARTITIONS * (arch.registers // PARTITIONS // per_warp) // per_block,
            "shared memory": arch.shared // (-(-shared_bytes // 128) * 128 + RESERVED_SHARED),
            "blocks": arch.blocks, "warps": arch.warps // per_block}
    limiter, blocks = min(fits.items(), key=lambda item: item[1])
    share = blocks * per_block / arch.warps
    return Occupancy(share=share, limiter="" if share > 0.99 else limiter)
