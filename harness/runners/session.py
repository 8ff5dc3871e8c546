"""The session of an evaluation or a loop: the device and its lock, runners, the oracle."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.case import Case
from harness.compile import kernel
from harness.compile.kernel import Kernel
from harness.compile.place import kind_of, place_on, scratch_inside
from harness.devices import datasheets, inventory
from harness.devices.device import Device
from harness.devices.monitoring import interference, tenants
from harness.errors import InputError
from harness.isolation import device_lock as lock
from harness.isolation import guard, shared_zygotes
from harness.isolation.device_lock import DeviceLock
from harness.isolation.process_outcome import Limits
from harness.isolation.zygote_client import Zygote
from harness.runners.kept_oracle import OracleShelf
from harness.runners.oracle_client import Oracle
from harness.runners.runner_pool import BYTES_PER_CONTEXT, RunnerPool, starts_ahead
from harness.settings import Settings
from harness.tasks.target import OF_CARD, Target
from harness.timing.paired_blocks import FIRST_SLOTS
from harness.timing.plan import GPU_BLOCK_NS, GPU_BLOCKS, GPU_LOOKS, LARGEST_RING, Plan

CALL_LIMITS = Limits(wall_s=40.0, output_bytes=1 << 20, memory_bytes=8 << 30, file_bytes=4 << 30)
PYTHON_LIMITS = replace(CALL_LIMITS, wall_s=180.0)
GPU_LIMITS = Limits(wall_s=300.0, output_bytes=1 << 20, memory_bytes=32 << 30, file_bytes=8 << 30)

RING_SHARE = 8
"""The slots of one side may take 1 / RING_SHARE of a card's memory."""
LARGEST_CACHE_MB = 256
"""Assumed last-level cache of a card that is not in `datasheets`, in MB."""

SETS_MODE = re.compile("setcsr|ldmxcsr|fldcw|fpcr|fesetround|fesetenv|feenableexcept|"
                       "FLUSH_ZERO_MODE|DENORMALS_ZERO_MODE|set_flush_denormal")
"""What a source mentions that changes the processor's floating-point mode."""
STAGED_RING = 256 << 20
"""Most bytes of a class's slots if contents pass through host memory, at seconds per GB."""


class Session:
    """Everything that both sides of a comparison share; `close` ends every runner.

    `base` is the baseline's tree, whose adapter calls every kernel. Without a GPU, Triton (the
    target's language, or `has_triton`) is interpreted on shapes made for that, and never timed.
    Processes are forked from a zygote: this process's own, if the session is given none of the
    right kind. Its oracle comes from the `shelf`, if there is one, and goes back to it.
    """

    def __init__(self, target: Target, device: Device, settings: Settings,
                 cancel: threading.Event | None, zygote: Zygote | None = None, *,
                 base: Path | None = None, has_triton: bool = False,
                 shelf: OracleShelf | None = None) -> None:
        _check_cards(target, device)
        self._shelf = shelf
        self.device, self.settings, self.cancel, self.base = device, settings, cancel, base
        self.on_wait: Callable[[str], None] | None = None
        """Called with the reason while `lock` waits for the device, unless it gets an `on_wait`."""
        self.several = len(device.cards) > 1
        self.on_cpu = device.kind == "cpu"
        self.mode = interference.require_usable(device)
        self.in_process = target.language != "c" and self.mode.one_process
        """Whether both kernels are timed in one process, since the card accepts no second one."""
        needed = OF_CARD.get(target.language, device.kind)
        self.lacks = "" if needed == device.kind else \
            f"{target.language} kernels need an {needed.upper()} GPU; {device.id} is not one"
        """Why no kernel of the target runs on this device, "" if they do."""
        self.place = place_on(device, target.language, scratch=settings.scratch,
                              python=settings.python, env=settings.env,
                              has_triton=has_triton)
        self.measurable = not self.lacks and not self.place.interpret
        self.target = target.interpretable() if self.place.interpret else target
        self.yields = lock.turnstile() if self.on_cpu else None
        kind = kind_of(self.place, target.language)
        self.any_mode = (base is not None and _sets_mode(base / target.source)) \
            or kernel.has_fast_math(target)
        """Whether kernels may change the floating-point mode, since the baseline's may do so."""
        self.zygote = zygote if zygote is not None and zygote.kind == kind else \
            shared_zygotes.zygote(kind, yields=self.yields)
        self.place = replace(self.place, yields=self.yields, zygote=self.zygote, cancel=cancel)
        self.runners = RunnerPool(
            _limits(target, device, settings), in_process=self.in_process,
            ahead=starts_ahead(self.place, target.language, device.memory_bytes))

    def make(self, tree: Path, name: str) -> Kernel:
        """Build the kernel from the target's source in `tree`. Raises BuildError."""
        return replace(kernel.make(self.target, tree, name, self.place, base=self.base),
                       any_mode=self.any_mode)

    def oracle(self, reference: Path, held: DeviceLock | None) -> Oracle:
        """Start the oracle with the reference of a tree. Raises OracleError."""
        place = replace(self.place, device="cpu") if self.in_process else self.place
        return Oracle(self.target, reference, self.folder("io"), place, lock=held,
                      shelf=self._shelf, may_leave=self._may_leave)

    def _may_leave(self) -> bool:
        """Return whether the oracle may stay on the card between verdicts.

        No candidate may be able to reach it, and the driver must list kopt's processes by pid:
        otherwise kopt would mistake the idle oracle for a stranger.
        """
        return self.device.kind == "nvidia" and not self.in_process \
            and not guard.confinement_problem() and not self.runners.unconfined \
            and all(tenants.own_is_listed(state.processes)
                    for state in inventory.states(self.device.cards))

    def fitted(self, plan: Plan) -> Plan:
        """Return the plan adapted to this device.

        A GPU gets its cache size, blocks that are not too short for its clock, and an earlier first
        look. A CPU's plan stays the same: warm caches, as its ceilings assume.
        """
        if self.on_cpu:
            return plan
        card = datasheets.find(self.device.name)
        cold = plan.cache == "cold"
        memory = self.device.memory_bytes or LARGEST_RING
        keep = any(arg.weight for arg in self.target.args)  # then slots stay mapped
        share = memory // RING_SHARE // (len(self.target.classes) if keep else 1)
        if self.in_process or self.device.kind == "amd":
            share = min(share, STAGED_RING)
        cache_mb = card.cache_mb if card else LARGEST_CACHE_MB
        fitted = replace(
            plan.with_looks(GPU_LOOKS), block_ns=max(plan.block_ns, GPU_BLOCK_NS // 3),
            blocks=min(plan.blocks, GPU_BLOCKS), cache_bytes=int(1e6 * cache_mb) if cold else 0,
            ring_bytes=share, largest_ring=share)
        return replace(fitted, score="wall", by_host=True) if self.several else fitted

    def pairs_at_once(self, plan: Plan, cases: Sequence[Case]) -> int:
        """Return how many pairs of runners may hold buffers at a time, in half of the card."""
        if self.on_cpu or self.in_process or self.device.memory_bytes is None:
            return 1
        held = sum(FIRST_SLOTS * case.footprint for case in cases)
        return max(1, self.device.memory_bytes // 4 // (held + BYTES_PER_CONTEXT // 4))

    def folder(self, name: str) -> Path:
        return scratch_inside(Path(self.settings.scratch), name)

    def lock(self, on_wait: Callable[[str], None] | None = None) -> DeviceLock:
        """Take the lock of all cards of the device."""
        return lock.acquire(*self.device.lock_names, cancel=self.cancel,
                            on_wait=on_wait or self.on_wait,
                            is_idle=partial(inventory.is_idle, self.device))

    @contextmanager
    def working(self, on_wait: Callable[[str], None] | None = None,
                ) -> Iterator[DeviceLock | None]:
        """Hold the lock of a GPU while anything runs on it; CPU work yields to measurements."""
        if self.on_cpu:
            yield None
            return
        with self.lock(on_wait) as held:
            yield held

    @contextmanager
    def measuring(self, held: DeviceLock | None, on_wait: Callable[[str], None] | None = None,
                  ) -> Iterator[DeviceLock]:
        """Hold the lock of the device during a measurement; reuse `held` if given."""
        if held is not None:
            yield held
            return
        with self.lock(on_wait) as acquired:
            yield acquired

    def close(self) -> None:
        self.runners.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sets_mode(source: Path) -> bool:
    return source.is_file() and SETS_MODE.search(source.read_text(errors="replace")) is not None


def _check_cards(target: Target, device: Device) -> None:
    """Raise InputError if the device does not have the number of cards that the target needs."""
    if target.num_gpus > 1 and (device.kind == "cpu" or len(device.cards) != target.num_gpus):
        raise InputError(f"the target needs {target.num_gpus} GPUs, but {device.id} has "
                         f"{len(device.cards) if device.kind != 'cpu' else 'none'}",
                         where="num_gpus", fix="name as many cards in gpu.device")


def _limits(target: Target, device: Device, settings: Settings) -> Limits:
    limits = GPU_LIMITS if device.kind != "cpu" else \
        CALL_LIMITS if target.language == "c" else PYTHON_LIMITS
    return limits if settings.wall_s is None else replace(limits, wall_s=settings.wall_s)
