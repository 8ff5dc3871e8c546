"""What a compiled GPU kernel needs of a multiprocessor, as its compiler reports it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from harness.devices import datasheets
from harness.devices.datasheets import Arch
from harness.formats.text import plain


@dataclass(frozen=True, kw_only=True)
class Section:
    """One iteration of an innermost loop of a kernel, or (`loop` false) the code outside of loops.

    `load_bytes` and `instructions` are one thread's, `flops` a program's in matrix instructions.
    """

    loop: bool
    load_bytes: int = 0
    instructions: int = 0
    flops: int = 0


@dataclass(frozen=True, kw_only=True)
class KernelResources:
    """The resources of one kernel, compiled for one class, autotune config and architecture.

    Sizes in bytes; `spills` per thread, loads and stores; `load_bytes` is the widest load of one
    thread from memory, `matrix` the kind of matrix instruction, `programs` the size of the grid.
    `error` is set instead when the kernel does not compile. `configs_left` counts the configs of an
    autotuned kernel that were not tried; `caught`: its launch fails, the host function continues.
    """

    kernel: str
    config_class: str
    arch: str
    config: str = ""
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int = 0
    threads: int = 0
    programs: int | None = None
    grid: tuple[int, ...] | None = None
    blocks_per_cluster: int = 1
    stages: int = 1
    load_bytes: int | None = None
    matrix: str = ""
    waves: int | None = None
    scalar_registers: int | None = None
    occupancy: float | None = None
    limiter: str = ""
    sections: tuple[Section, ...] = ()
    configs_left: int = 0
    caught: bool = False
    error: str = ""

    @property
    def fits(self) -> bool:
        """Whether its shared memory fits; `unlaunchable` checks the other limits."""
        known = datasheets.find_arch(self.arch)
        return known is None or self.shared_bytes <= known.shared_per_block


def by_kernel(resources: Sequence[KernelResources],
              ) -> dict[tuple[str, str, str], list[KernelResources]]:
    """Return the resources by architecture, kernel and class: the configs of one kernel."""
    groups: dict[tuple[str, str, str], list[KernelResources]] = {}
    for each in resources:
        groups.setdefault((each.arch, each.kernel, each.config_class), []).append(each)
    return groups


def with_occupancy(kernel: KernelResources) -> KernelResources:
    """Add the occupancy that its registers, shared memory and threads allow, where it is known."""
    arch = datasheets.find_arch(kernel.arch)
    fit = None if kernel.error or arch is None else datasheets.occupancy(
        arch, registers=kernel.registers, shared_bytes=kernel.shared_bytes,
        threads=kernel.threads, waves=kernel.waves)
    return kernel if fit is None else replace(kernel, occupancy=round(fit[0], 4), limiter=fit[1])


MOST_REASONS = 8


def unlaunchable(kernel: KernelResources) -> tuple[str, ...]:
    """Return why its architecture cannot launch a kernel; empty if it can, or is unknown itself.

    The compiler does not check this: Triton compiles a config for sm_90 that needs 393,216 bytes of
    shared memory without an error, and the launch fails.
    """
    arch = datasheets.find_arch(kernel.arch)
    if arch is None:
        return ()
    if kernel.error:
        return (f"does not compile for {arch.name}: {kernel.error}",)
    return (*_block(arch, kernel), *_grid(arch, kernel))


def _block(arch: Arch, kernel: KernelResources) -> Iterable[str]:
    threads, registers = kernel.threads, kernel.registers
    if threads > arch.threads_per_block:
        yield f"{threads} threads per block, {arch.name} allows {arch.threads_per_block}: use fewer"
    elif threads < 1 or threads % arch.warp:
        yield f"{threads} threads per block are not a multiple of the warp size {arch.warp}"
    if kernel.shared_bytes > arch.shared_per_block:
        yield (f"needs {kernel.shared_bytes} bytes of shared memory per block, {arch.name} has at "
               f"most {arch.shared_per_block}: use smaller tiles or fewer stages")
    if registers is None:
        return
    warps, fit = -(-threads // arch.warp), datasheets.resident_warps(arch, registers)
    if registers > arch.registers_per_thread:
        yield f"{registers} registers per thread, {arch.name} allows {arch.registers_per_thread}"
    elif warps > fit:
        yield (f"{registers} registers for each of {threads} threads: {arch.name}'s "
               f"register file holds {fit} such warps, the block has {warps}")


def _grid(arch: Arch, kernel: KernelResources) -> Iterable[str]:
    for name, size, most in zip("xyz", kernel.grid or (), arch.grid, strict=False):
        if size > most:
            yield f"a grid of {size} blocks along {name}, {arch.name} allows {most}"
        elif size < 0:
            yield f"a grid of {size} blocks along {name}"
    along_x = arch.threads_x
    if kernel.grid and along_x is not None and kernel.grid[0] * kernel.threads > along_x:
        yield (f"a grid of {kernel.grid[0]} blocks of {kernel.threads} threads along x, "
               f"{arch.name} allows {along_x} threads")
    if kernel.blocks_per_cluster > arch.cluster:
        yield (f"clusters of {kernel.blocks_per_cluster} blocks, {arch.name} allows "
               + (f"{arch.cluster}" if arch.cluster > 1 else "none"))


def all_unlaunchable(resources: Sequence[KernelResources]) -> tuple[str, ...]:
    """Return why a target cannot be launched, from the resources of its kernels.

    Autotune skips configs whose launch fails, so only a kernel of which no config can be launched
    is a reason. A config that does not compile here, was not tried, or whose failure the host
    function catches is not. Each reason names the kernel and its classes.
    """
    classes_of: dict[str, list[str]] = {}
    for (_, kernel, config_class), group in by_kernel(resources).items():
        by_config = [unlaunchable(each) for each in group]
        if all(by_config) and not any(
                each.error or each.caught or each.configs_left for each in group):
            fewest = min(by_config, key=len)
            classes_of.setdefault(f"{kernel} {'; '.join(fewest)}", []).append(config_class)
    return tuple(plain(f"{reason} (class {', '.join(classes)})", 400)
                 for reason, classes in list(classes_of.items())[:MOST_REASONS])
