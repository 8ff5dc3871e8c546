"""Ahead-of-time compilation: what a Triton kernel takes of a GPU, told without having one."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.compile import kernel
from harness.compile.kernel import Place
from harness.devices import architectures as archs
from harness.devices.architectures import Arch
from harness.errors import InputError, KoptError
from harness.formats.json_codec import ConvertError, convert
from harness.formats.text import plain
from harness.isolation.device_lock import Turnstile
from harness.isolation.guard import Confine, Limits, clean_env
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.isolation.zygote_client import Zygote
from harness.target import Target
from harness.verdict import Row

AOT_LIMITS = Limits(wall_s=240.0, output_bytes=4 << 20, memory_bytes=8 << 30)
DEFAULT_ARCH = "sm_90"
NARROW = 16
"""A thread's loads are widest at 16 bytes."""
NEAR_ROOFLINE = 90.0


class AotError(KoptError):
    """The kernels could not be compiled ahead of time; `what` says why."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class Section:
    """An innermost loop of a kernel's code, or all that is in none (`loop` false), in one turn.

    `load_bytes` and `instructions` are one thread's, `flops` a program's in matrix instructions.
    """

    loop: bool
    load_bytes: int = 0
    instructions: int = 0
    flops: int = 0


@dataclass(frozen=True, kw_only=True)
class KernelResources:
    """What one kernel takes when compiled for one config class, autotune config and architecture.

    Sizes in bytes; `spills` per thread, loads and stores; `load_bytes` is the widest load of one
    thread from memory, `matrix` the kind of matrix instruction, `programs` the size of the grid.
    `error` replaces all of it when the kernel does not compile. `configs_left` of an autotuned
    kernel were not tried; `caught` says that its launch fails and the host function goes on.
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
        """Whether its shared memory is there: Triton compiles more; `feasible` knows the rest."""
        known = archs.find(self.arch)
        return known is None or self.shared_bytes <= known.shared_per_block


@dataclass(frozen=True, kw_only=True)
class Limit:
    """One thing that holds a kernel back, as far as its compiled code tells."""

    kernel: str
    config_class: str
    limiter: str
    metric: str
    value: float | None
    detail: str
    advice: str


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """What a target's kernels take, and the argument types of those launched: one each."""

    resources: tuple[KernelResources, ...]
    signatures: tuple[tuple[str, ...], ...] = ()


def inspect(target: Target, tree: Path, arch: str | Sequence[str], scratch: Path, *,
            python: str | None = None, env: Mapping[str, str] | None = None,
            max_configs: int = 64, first_fit: bool = False, yields: Turnstile | None = None,
            cancel: threading.Event | None = None) -> tuple[KernelResources, ...]:
    """Compile every Triton kernel that the target launches, for each config class and architecture.

    Of an autotuned kernel up to `max_configs` configs, with `first_fit` up to the first one whose
    shared memory and threads fit. Raises InputError for an architecture that is not known,
    BuildError for a source that is no Python and AotError when no class could be compiled.
    """
    return inspected(target, tree, arch, scratch, python=python, env=env, max_configs=max_configs,
                     first_fit=first_fit, yields=yields, cancel=cancel).resources


def inspected(target: Target, tree: Path, arch: str | Sequence[str], scratch: Path, *,
              python: str | None = None, env: Mapping[str, str] | None = None,
              max_configs: int = 64, first_fit: bool = False, cached: bool = False,
              nice: int = 0, limits: Limits = AOT_LIMITS, yields: Turnstile | None = None,
              zygote: Zygote | None = None, cancel: threading.Event | None = None) -> Inspected:
    """Do what `inspect` does. `cached` reads what is in the cache of that scratch folder already,
    in `cache_in`, where everything that is compiled is written to either way.

    A cached kernel comes without the assembler's report: its spills may not be known.
    """
    wanted = [_arch(name) for name in ([arch] if isinstance(arch, str) else arch)]
    place = Place(device="cpu", scratch=str(scratch), python=python, env=dict(env or {}))
    side = kernel.make(target, tree, "aot", place)
    side.home.mkdir(parents=True, exist_ok=True)
    found: list[KernelResources] = []
    signatures: list[tuple[str, ...]] = []
    failure = ""
    with peer(place, side.home, limits=limits, cached=cached, yields=yields, zygote=zygote,
              cancel=cancel) as compiler:
        try:
            compiler.ask("load", **{**side.job(), "archs": wanted, "max_configs": max_configs,
                                    "first_fit": first_fit, "nice": nice})
            for config_class in target.classes:
                try:
                    answer = compiler.ask("inspect", tensors=target.tensors(config_class))
                except PeerError as error:
                    failure = failure or f"class {config_class.name}: {error.what}"
                    continue
                found += [_resources(raw, config_class.name) for raw in answer["kernels"]]
                signatures = list(convert(answer["signatures"], tuple[tuple[str, ...], ...]))
        except (PeerError, PeerDied) as error:
            failure = failure or error.what
        except (ConvertError, KeyError, TypeError) as error:
            failure = failure or f"the compiler process talks nonsense: {error}"
    if not found:
        raise AotError(failure or "the target launches no Triton kernel", where=target.source)
    return Inspected(resources=tuple(found), signatures=tuple(signatures))


def cache_in(scratch: Path) -> Path:
    """Return Triton's cache folder of whatever is compiled with a scratch folder."""
    return scratch / "home-aot" / "triton"


def peer(place: Place, home: Path, *, limits: Limits = AOT_LIMITS, cached: bool = True,
         yields: Turnstile | None = None, zygote: Zygote | None = None,
         cancel: threading.Event | None = None) -> Peer:
    """Start the compiling program: it sees no GPU and writes below `home` alone."""
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "TRITON_HOME": str(home),
              "TRITON_CACHE_DIR": str(home / "triton"), "TRITON_DUMP_PTXAS_LOG": "1"}
    if not cached:
        hidden["TRITON_ALWAYS_COMPILE"] = "1"  # neither of the two is in the key of a cache
    return Peer("compile.aot", cwd=home, limits=limits, python=place.python, yields=yields,
                env=clean_env({**place.env, **hidden}, home=home), cancel=cancel, zygote=zygote,
                confine=Confine(writable=(str(home),), cards=False))


def bottlenecks_of(resources: Sequence[KernelResources], rows: Sequence[Row] = (),
                   ) -> tuple[Limit, ...]:
    """Return what holds the kernels back, the heaviest first.

    Of an autotuned kernel only what every config suffers counts. `rows` are the verdict's: a class
    near its roofline is left out, the one furthest from it comes first.
    """
    reached = {row.config_class: row.pct_of_roofline for row in rows
               if row.pct_of_roofline is not None}
    groups: dict[tuple[str, str, str], list[KernelResources]] = {}
    for one in resources:
        groups.setdefault((one.config_class, one.kernel, one.arch), []).append(one)
    limits: list[tuple[int, float, Limit]] = []
    for (config_class, _, _), group in groups.items():
        far = reached.get(config_class, 0.0)
        if far < NEAR_ROOFLINE:
            limits += [(rank, far, limit) for rank, limit in _of_group(group)]
    return tuple(limit for _, _, limit in sorted(limits, key=lambda item: item[:2]))


def _of_group(group: Sequence[KernelResources]) -> Iterable[tuple[int, Limit]]:
    """Yield (rank, limit) for one kernel of one class; a lower rank weighs more."""
    built = [one for one in group if not one.error]
    if not built:
        yield 0, _limit(group[0], "does not compile", "", None, group[0].error,
                        "use what the architecture has")
        return
    over = [one for one in built if not one.fits]
    if over:
        cap = _arch(over[0].arch).shared_per_block
        yield 0, _limit(
            over[0], "shared memory", "shared bytes a block", float(over[0].shared_bytes),
            f"{over[0].shared_bytes} bytes of shared memory, {over[0].arch} gives {cap}: it "
            "compiles but cannot be launched", "smaller tiles or fewer stages")
    built = [one for one in built if one.fits]
    if not built:
        return
    spilling = min(built, key=lambda one: one.spills or 0)
    if spilling.spills:
        yield 1, _limit(spilling, "register spills", "spilled bytes a thread",
                        float(spilling.spills), f"{spilling.registers} registers a thread and "
                        f"{spilling.spills} bytes spilled to memory",
                        "smaller tiles, or more warps for the same tile")
    yield from _of_code(built)


def _of_code(built: Sequence[KernelResources]) -> Iterable[tuple[int, Limit]]:
    first = built[0]
    if first.arch == "sm_90" and all(one.matrix == "mma" for one in built):
        yield 2, _limit(first, "matrix instructions", "warp-group instructions", 0.0,
                        "products run on mma.sync, not on Hopper's warp-group instructions",
                        "tiles of at least 64 rows and warps in fours")
    widest = max(one.load_bytes or NARROW for one in built)
    if widest < NARROW:
        yield 3, _limit(first, "narrow loads", "bytes a load", float(widest),
                        f"no thread loads more than {widest} bytes at a time of {NARROW} possible",
                        "more elements a thread (larger tile or fewer warps), aligned rows")
    programs = max(one.programs or 0 for one in built)
    processors = _arch(first.arch).multiprocessors
    if 0 < programs < processors:
        yield 4, _limit(first, "idle multiprocessors", "programs", float(programs),
                        f"a grid of {programs} programs for {processors} multiprocessors",
                        "smaller tiles, or split the long dimension over programs")
    known = [one for one in built if one.occupancy is not None]
    best = max(known, key=lambda one: one.occupancy or 0.0, default=None)
    if best is not None and not best.matrix and (best.occupancy or 0.0) < 0.5:
        yield 5, _limit(best, "occupancy", "% of warps resident", 100 * (best.occupancy or 0.0),
                        f"{best.threads} threads, {best.registers} registers each and "
                        f"{best.shared_bytes} bytes shared: {best.limiter} allow no more",
                        f"use less of what limits it: {best.limiter}")


def _limit(one: KernelResources, limiter: str, metric: str, value: float | None, detail: str,
           advice: str) -> Limit:
    config = f" ({one.config})" if one.config else ""
    return Limit(kernel=one.kernel, config_class=one.config_class, limiter=limiter, metric=metric,
                 value=value, detail=plain(f"{one.arch}: {detail}{config}", 400), advice=advice)


def _arch(name: str) -> Arch:
    found = archs.find(name)
    if found is None:
        known = ", ".join(one.name for one in archs.ARCHS)
        raise InputError(f"no architecture {name!r}", fix=f"one of {known}")
    return found


def _resources(raw: object, config_class: str) -> KernelResources:
    assert isinstance(raw, dict)
    one = convert({**raw, "config_class": config_class}, KernelResources)
    one = replace(one, kernel=plain(one.kernel, 120), config=plain(one.config, 200),
                                  error=plain(one.error, 300))
    fit = None if one.error else archs.occupancy(
        _arch(one.arch), registers=one.registers, shared_bytes=one.shared_bytes,
        threads=one.threads, waves=one.waves)
    return one if fit is None else replace(
        one, occupancy=round(fit.share, 4), limiter=fit.limiter)
