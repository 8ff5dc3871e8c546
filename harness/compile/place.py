"""Where kernels run and are built: the device, the Python, the folders."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.devices.device import Device
from harness.errors import InputError
from harness.isolation.device_lock import Turnstile
from harness.isolation.guard import clean_env
from harness.isolation.zygote_client import Zygote, ZygoteKind


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where kernels run and are built: the device, the Python, the folder they may write below.

    `device` is torch's name in a process that sees no other card: "cpu" or "cuda:0". `interpret`
    says that Triton's interpreter runs the kernels.
    """

    device: str = "cpu"
    scratch: str
    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    interpret: bool = False
    arch: str = ""
    """The card's architecture, such as "sm_90"; empty for the CPU."""
    nodes: tuple[str, ...] = ()
    """The files below /dev of the cards that kernels may open, empty for all."""
    yields: Turnstile | None = None
    """By which builds and untimed calls stop for measurements of other processes."""
    zygote: Zygote | None = None
    """Forks the processes that need its imports."""
    cancel: threading.Event | None = None


def place_on(device: Device, language: str, *, scratch: str, python: str | None,
             env: Mapping[str, str], has_triton: bool = False) -> Place:
    """Return the place for kernels on a device; Triton is interpreted on the CPU.

    `has_triton` says that the sources of a Python target import Triton.
    """
    on_cpu = device.kind == "cpu"
    return Place(device="cpu" if on_cpu else "cuda:0", scratch=scratch, python=python,
                 env={**env, **device.visible_env},
                 interpret=on_cpu and (has_triton or language == "triton"),
                 arch="" if on_cpu else device.arch, nodes=device.all_nodes)


def kind_of(place: Place, language: str) -> ZygoteKind:
    """Return the kind of zygote for a place and a language.

    For C it imports numpy, for oracles, and runs in kopt's own Python. For Python it also imports
    Triton where that can run, since candidates often use it.
    """
    if language == "python" and (place.interpret or place.device != "cpu"):
        language = "triton"
    env = clean_env({**place.env, **({"TRITON_INTERPRET": "1"} if place.interpret else {})})
    python = None if language == "c" else place.python
    return ZygoteKind(python=python or sys.executable, language=language,
                      env=tuple(sorted(env.items())))


def scratch_inside(folder: Path, name: str) -> Path:
    """Create and return a folder below `folder`. Raises InputError where it cannot be written."""
    path = folder / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write here: {error.strerror}", where=str(path)) from None
    return path
