"""What GPU architectures give a kernel: registers, shared memory, warps; and how many fit.

NVIDIA: CUDA C++ programming guide 13.0, technical specifications per compute capability; thread
block clusters: 8 blocks are portable, 16 where a kernel opts in (Hopper tuning guide). AMD: CDNA 2,
3 and 4 instruction set guides, a launch's limits from the HIP programming guide. Multiprocessors
are those of the largest product.
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
    threads_per_block: int = 1024
    registers_per_thread: int = 255
    register_unit: int = 256
    """A warp gets registers in such lots; on AMD, lanes of a register times the lot of eight."""
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    threads_x: int | None = None
    """The most threads along the first dimension of a grid."""
    cluster: int = 1
    """The most blocks of a cluster; 1 where there are none."""
    near: int = 0
    """A multiprocessor's own data cache in bytes; NVIDIA's shared memory is taken out of it."""


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """The share of a multiprocessor's warps that can be resident, and what allows no more."""

    share: float
    limiter: str


def _nvidia(number: int, shared_kib: int, warps: int, blocks: int, multiprocessors: int,
            near_kib: int, cluster: int = 1) -> Arch:
    return Arch(name=f"sm_{number}", backend="cuda", number=str(number), warp=32,
                shared_per_block=(shared_kib - 1) << 10, shared=shared_kib << 10, warps=warps,
                blocks=blocks, multiprocessors=multiprocessors, cluster=cluster,
                near=near_kib << 10)


def _amd(number: str, shared_kib: int, multiprocessors: int, near_kib: int) -> Arch:
    return Arch(name=number, backend="hip", number=number, warp=64, shared=shared_kib << 10,
                shared_per_block=shared_kib << 10, warps=32, blocks=16,
                multiprocessors=multiprocessors, registers=4 * 512 * 64, registers_per_thread=512,
                register_unit=8 * 64, near=near_kib << 10, grid=(2**31 - 1,) * 3,
                threads_x=2**32 - 1)


ARCHS: tuple[Arch, ...] = (
    _nvidia(80, 164, 64, 32, 108, 192), _nvidia(86, 100, 48, 16, 84, 128),
    _nvidia(89, 100, 48, 24, 142, 128), _nvidia(90, 228, 64, 32, 132, 256, 16),
    _nvidia(100, 228, 64, 32, 148, 256, 16), _nvidia(120, 100, 48, 24, 188, 128, 8),
    _amd("gfx90a", 64, 104, 16), _amd("gfx942", 64, 304, 32), _amd("gfx950", 160, 256, 32),
)


def find(name: str) -> Arch | None:
    """Return an architecture by a name such as "sm_90" or "gfx942:sramecc+:xnack-"."""
    wanted = name.partition(":")[0].removesuffix("a") if name.startswith("sm_") \
        else name.partition(":")[0]
    return next((arch for arch in ARCHS if arch.name == wanted), None)


def resident_warps(arch: Arch, registers: int) -> int:
    """Return how many warps the registers hold: a warp gets them from one of four partitions."""
    unit = arch.register_unit
    per_warp = -(-max(registers, 1) * arch.warp // unit) * unit
    return PARTITIONS * (arch.registers // PARTITIONS // per_warp)


def occupancy(arch: Arch, *, registers: int | None, shared_bytes: int, threads: int,
              waves: int | None = None) -> Occupancy | None:
    """Return how many warps fit, None where that is not known; 0 when not one block fits.

    `waves` is the AMD compiler's own figure, per SIMD of eight: what its registers allow, without
    the shared memory that Triton asks for at the launch.
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
