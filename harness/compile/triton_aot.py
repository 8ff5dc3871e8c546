"""Compile Triton kernels ahead of time, to learn what they need of a GPU that may be absent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.compile import kernel as kernels
from harness.compile.kernel_resources import KernelResources, by_kernel, with_occupancy
from harness.compile.place import Place
from harness.devices import datasheets
from harness.devices.datasheets import Arch
from harness.errors import InputError, KoptError
from harness.formats.json_codec import ConvertError, convert
from harness.formats.text import plain
from harness.isolation.confinement import Confine
from harness.isolation.guard import clean_env
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.tasks.target import Target
from harness.verdict import Row

AOT_LIMITS = Limits(wall_s=240.0, output_bytes=4 << 20, memory_bytes=8 << 30)
DEFAULT_ARCH = "sm_90"
MAX_CONFIGS = 64
"""The most configs of an autotuned kernel that are compiled."""
NARROW = 16
"""Bytes of the widest load that one thread can make."""
NEAR_ROOFLINE = 90.0
"""From this percentage of the roofline on, a class gets no advice."""


class AotError(KoptError):
    """The kernels could not be compiled ahead of time; `what` says why."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class KernelLimit:
    """One limit of a kernel's performance, found in its compiled code."""

    kernel: str
    config_class: str
    limiter: str
    metric: str
    value: float | None
    detail: str


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The resources of a target's kernels, and the distinct argument types of their launches."""

    resources: tuple[KernelResources, ...]
    signatures: tuple[tuple[str, ...], ...] = ()


def inspect(target: Target, tree: Path, arch: str, place: Place, *, cached: bool = False,
            nice: int = 0, limits: Limits = AOT_LIMITS) -> Inspection:
    """Compile every Triton kernel that the target launches, for each config class.

    Everything compiled is written to the cache of the place's folder, `cache_in`; `cached` also
    reads it. A cached kernel comes without the assembler's report: its spills may be unknown.
    Raises InputError for an unknown architecture, BuildError for a source that is missing or not
    valid Python, and AotError when no class yields a kernel.
    """
    compiled_for = _arch(arch)
    side = kernels.make(target, tree, "aot", place)
    side.home.mkdir(parents=True, exist_ok=True)
    resources: list[KernelResources] = []
    signatures: tuple[tuple[str, ...], ...] = ()
    failure = ""
    with peer(place, side.home, limits=limits, cached=cached) as compiler:
        try:
            compiler.ask("load", **{**side.job(), "arch": compiled_for, "nice": nice,
                                    "max_configs": MAX_CONFIGS,
                                    "without_memory": target.language == "python"})
            for config_class in target.classes:
                try:
                    answer = compiler.ask("inspect", tensors=target.tensors(config_class))
                except PeerError as error:
                    failure = failure or f"class {config_class.name}: {error.what}"
                    continue
                resources += [_resources(raw, config_class.name) for raw in answer["kernels"]]
                signatures = convert(answer["signatures"], tuple[tuple[str, ...], ...])
        except (PeerError, PeerDied) as error:
            failure = failure or error.what
        except (ConvertError, KeyError, TypeError) as error:
            failure = failure or f"the compiler process sent an invalid answer: {error}"
    if not resources:
        raise AotError(failure or "the target launches no Triton kernel", where=target.source)
    return Inspection(resources=tuple(resources), signatures=signatures)


def cache_in(scratch: Path) -> Path:
    """Return Triton's cache folder inside a scratch folder."""
    return scratch / "home-aot" / "triton"


def peer(place: Place, home: Path, *, limits: Limits = AOT_LIMITS, cached: bool = True) -> Peer:
    """Start the compiling program: it sees no GPU and writes only below `home`."""
    variables = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "TRITON_HOME": str(home),
              "TRITON_CACHE_DIR": str(home / "triton"), "TRITON_DUMP_PTXAS_LOG": "1"}
    if not cached:
        variables["TRITON_ALWAYS_COMPILE"] = "1"  # a cached kernel comes without ptxas' log
    return Peer("compile.aot", cwd=home, limits=limits, python=place.python, yields=place.yields,
                env=clean_env({**place.env, **variables}, home=home), cancel=place.cancel,
                zygote=place.zygote, confine=Confine(writable=(str(home),), cards=False))


def bottlenecks_of(resources: Sequence[KernelResources], rows: Sequence[Row] = (),
                   ) -> tuple[KernelLimit, ...]:
    """Return the limits of the kernels, the most important first.

    Of an autotuned kernel, too much shared memory counts in any config, another limit only if all
    configs have it. `rows` are the verdict's: a class near its roofline is left out; among equal
    limits, the class furthest from its roofline comes first.
    """
    reached = {row.config_class: row.pct_of_roofline for row in rows
               if row.pct_of_roofline is not None}
    limits: list[tuple[int, float, KernelLimit]] = []
    for (_, _, config_class), group in by_kernel(resources).items():
        far = reached.get(config_class, 0.0)
        if far < NEAR_ROOFLINE:
            limits += [(rank, far, limit) for rank, limit in _of_group(group)]
    return tuple(limit for _, _, limit in sorted(limits, key=lambda item: item[:2]))


def _of_group(group: Sequence[KernelResources]) -> Iterable[tuple[int, KernelLimit]]:
    """Yield (rank, limit) for one kernel of one class; lower ranks are more important."""
    built = [each for each in group if not each.error]
    if not built:
        yield 0, _limit(group[0], "does not compile", "", None, group[0].error)
        return
    over = [each for each in built if not each.fits]
    if over:
        cap = _arch(over[0].arch).shared_per_block
        yield 0, _limit(
            over[0], "shared memory", "shared bytes a block", float(over[0].shared_bytes),
            f"{over[0].shared_bytes} bytes of shared memory, {over[0].arch} allows {cap}: it "
            "compiles but cannot be launched")
    built = [each for each in built if each.fits]
    if not built:
        return
    spilling = min(built, key=lambda each: each.spills or 0)
    if spilling.spills:
        yield 1, _limit(spilling, "register spills", "spilled bytes a thread",
                        float(spilling.spills), f"{spilling.registers} registers per thread and "
                        f"{spilling.spills} bytes spilled to memory")
    yield from _of_code(built)


def _of_code(built: Sequence[KernelResources]) -> Iterable[tuple[int, KernelLimit]]:
    first = built[0]
    if first.arch == "sm_90" and all(each.matrix == "mma" for each in built):
        yield 2, _limit(first, "matrix instructions", "warp-group instructions", 0.0,
                        "products run on mma.sync, not on Hopper's warp-group instructions")
    widest = max(each.load_bytes or NARROW for each in built)
    if widest < NARROW:
        yield 3, _limit(first, "narrow loads", "bytes a load", float(widest),
                        f"no thread loads more than {widest} of {NARROW} possible bytes at a time")
    programs = max(each.programs or 0 for each in built)
    processors = _arch(first.arch).multiprocessors
    if 0 < programs < processors:
        yield 4, _limit(first, "idle multiprocessors", "programs", float(programs),
                        f"a grid of {programs} programs for {processors} multiprocessors")
    known = [each for each in built if each.occupancy is not None]
    best = max(known, key=lambda each: each.occupancy or 0.0, default=None)
    if best is not None and not best.matrix and (best.occupancy or 0.0) < 0.5:
        yield 5, _limit(best, "occupancy", "% of warps resident", 100 * (best.occupancy or 0.0),
                        f"{best.threads} threads, {best.registers} registers each and "
                        f"{best.shared_bytes} bytes shared: {best.limiter} allow no more")


def _limit(kernel: KernelResources, limiter: str, metric: str, value: float | None,
           detail: str) -> KernelLimit:
    config = f" ({kernel.config})" if kernel.config else ""
    return KernelLimit(
        kernel=kernel.kernel, config_class=kernel.config_class, limiter=limiter, metric=metric,
        value=value, detail=plain(f"{kernel.arch}: {detail}{config}", 400))


def _arch(name: str) -> Arch:
    arch = datasheets.find_arch(name)
    if arch is None:
        raise InputError(f"no architecture {name!r}", fix="one of " + ", ".join(
            each.name for each in datasheets.archs()))
    return arch


def _resources(raw: object, config_class: str) -> KernelResources:
    assert isinstance(raw, dict)
    kernel = convert({**raw, "config_class": config_class}, KernelResources)
    kernel = replace(kernel, kernel=plain(kernel.kernel, 120), config=plain(kernel.config, 200),
                     error=plain(kernel.error, 300))
    return with_occupancy(kernel)
