"""Whether a card can launch what compiled: the compiler does not say, the launch fails, or worse.

Triton compiles a config for sm_90 that needs 393,216 bytes of shared memory without complaint.
What ahead-of-time compilation cannot tell is no reason: such a kernel is left to its launch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from harness.compile import triton_aot
from harness.compile.triton_aot import KernelResources
from harness.devices import architectures as archs
from harness.devices.architectures import Arch
from harness.errors import EnvironmentFault, KoptError
from harness.formats.text import plain
from harness.isolation.device_lock import Turnstile
from harness.target import Target

MOST_REASONS = 8


def reasons(arch: Arch, one: KernelResources) -> tuple[str, ...]:
    """Return why a card of this architecture cannot launch the kernel, empty when it can."""
    if one.error:
        return (f"does not compile for {arch.name}: {one.error}",)
    return (*_threads(arch, one), *_shared(arch, one), *_registers(arch, one), *_grid(arch, one),
            *_cluster(arch, one))


def _threads(arch: Arch, one: KernelResources) -> Iterable[str]:
    if one.threads > arch.threads_per_block:
        yield (f"{one.threads} threads a block, {arch.name} allows {arch.threads_per_block}: "
               "fewer warps")
    elif one.threads < 1 or one.threads % arch.warp:
        yield f"{one.threads} threads a block are no whole number of warps of {arch.warp}"


def _shared(arch: Arch, one: KernelResources) -> Iterable[str]:
    if one.shared_bytes > arch.shared_per_block:
        yield (f"needs {one.shared_bytes} bytes of shared memory a block, {arch.name} gives at "
               f"most {arch.shared_per_block}: smaller tiles or fewer stages")


def _registers(arch: Arch, one: KernelResources) -> Iterable[str]:
    if one.registers is None:
        return
    if one.registers > arch.registers_per_thread:
        yield (f"{one.registers} registers a thread, {arch.name} has "
               f"{arch.registers_per_thread}")
        return
    warps, fit = -(-one.threads // arch.warp), archs.resident_warps(arch, one.registers)
    if warps > fit:
        yield (f"{one.registers} registers for each of {one.threads} threads: {arch.name}'s "
               f"register file holds {fit} such warps, the block has {warps}")


def _grid(arch: Arch, one: KernelResources) -> Iterable[str]:
    for name, size, most in zip("xyz", one.grid or (), arch.grid, strict=False):
        if size > most:
            yield f"a grid of {size} blocks along {name}, {arch.name} allows {most}"
        elif size < 0:
            yield f"a grid of {size} blocks along {name}"
    if one.grid and arch.threads_x is not None and one.grid[0] * one.threads > arch.threads_x:
        yield (f"a grid of {one.grid[0]} blocks of {one.threads} threads along x, {arch.name} "
               f"allows {arch.threads_x} threads")


def _cluster(arch: Arch, one: KernelResources) -> Iterable[str]:
    if one.blocks_per_cluster > arch.cluster:
        yield (f"clusters of {one.blocks_per_cluster} blocks, {arch.name} allows "
               + (f"{arch.cluster}" if arch.cluster > 1 else "none"))


def of_all(resources: Sequence[KernelResources]) -> tuple[str, ...]:
    """Return why a target cannot be launched with what its kernels take.

    Autotune tries the configs of a kernel and leaves out those that fail: only where none of them
    can be launched is that a reason. One that does not compile here, that was not tried, or whose
    failure the host function catches speaks for the kernel. Each reason names kernel and class.
    """
    groups: dict[tuple[str, str, str], list[KernelResources]] = {}
    for one in resources:
        groups.setdefault((one.arch, one.kernel, one.config_class), []).append(one)
    found: dict[str, list[str]] = {}
    for (name, kernel, config_class), group in groups.items():
        arch = archs.find(name)
        if arch is None or any(one.error or one.caught or one.configs_left for one in group):
            continue
        said = [reasons(arch, one) for one in group]
        if all(said):
            fewest = min(said, key=len)
            found.setdefault(f"{kernel} {'; '.join(fewest)}", []).append(config_class)
    return tuple(plain(f"{reason} (class {', '.join(classes)})", 400)
                 for reason, classes in list(found.items())[:MOST_REASONS])


def check(target: Target, tree: Path, arch: str, scratch: Path, *, python: str | None = None,
          env: Mapping[str, str] | None = None, max_configs: int = 64,
          yields: Turnstile | None = None, cancel: threading.Event | None = None,
          ) -> tuple[str, ...]:
    """Return why a card of this architecture cannot launch the target, for any of its classes.

    Empty where it can be launched, and where nobody can tell: a target that is not Triton, an
    architecture that is not known, a source or host function that cannot be traced without a GPU.
    Compiles each launch once, of autotuned kernels no more than up to the first config that fits.
    Raises only EnvironmentFault, which says nothing about the target.
    """
    if target.language != "triton" or archs.find(arch) is None:
        return ()
    try:
        found = triton_aot.inspect(target, tree, arch, scratch, python=python, env=env,
                            max_configs=max_configs, first_fit=True, yields=yields,
                            cancel=cancel)
    except EnvironmentFault:
        raise
    except KoptError:
        return ()
    return of_all(found)
