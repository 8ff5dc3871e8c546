"""One zygote per kind for all tests, because importing torch takes seconds."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.compile import triton_aot
from harness.compile.kernel_resources import KernelResources
from harness.compile.place import Place, kind_of, place_on
from harness.compile.triton_aot import Inspection
from harness.devices import inventory
from harness.isolation.zygote_client import Zygote, ZygoteKind
from harness.tasks.target import Target
from tests.support.programs import zygote_broker

_inspect = triton_aot.inspect  # bound here, as tests replace the attribute


def zygote(language: str, device: str = "cpu",
           env: Mapping[str, str] | None = None) -> Zygote:
    """Return the zygote of programs in a language for a device."""
    return for_place(place_on(inventory.find(device), language, scratch="", python=None,
                              env=env or {}), language)


def compiler() -> Zygote:
    """Return the zygote of programs that compile Triton for absent cards."""
    return for_place(Place(device="cpu", scratch=""), "triton")


def module_reader() -> Zygote:
    """Return the zygote of programs that inspect a PyTorch module, which imports much of torch."""
    kind = kind_of(Place(device="cpu", scratch=""), "python")
    return _kept(replace(kind, modules=("torch", "torch._dynamo", "torch.utils.flop_counter")))


def for_place(place: Place, language: str) -> Zygote:
    return _kept(kind_of(place, language))


def inspect(*given: Any, **fields: Any) -> Inspection:
    """Run `triton_aot.inspect` in a forked process."""
    target, tree, arch, place = given
    return _inspect(target, tree, arch, replace(place, zygote=place.zygote or compiler()), **fields)


def resources(target: Target, tree: Path, archs: Iterable[str], scratch: Path,
              ) -> tuple[KernelResources, ...]:
    """Return the resources of a target's kernels on several architectures."""
    return tuple(kernel for arch in archs
                 for kernel in inspect(target, tree, arch, Place(scratch=str(scratch))).resources)


def _kept(kind: ZygoteKind) -> Zygote:
    kept = _started(kind)
    if not kept.alive:
        _started.cache_clear()
        kept = _started(kind)
    return kept


@functools.cache
def _started(kind: ZygoteKind) -> Zygote:
    kept = zygote_broker.start(kind)
    atexit.register(kept.close)
    return kept
