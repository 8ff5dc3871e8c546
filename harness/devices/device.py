"""What a device is and what state it is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.errors import InputError

DeviceKind = Literal["cpu", "nvidia", "amd"]

SLOWDOWNS = frozenset({"hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake", "throttled"})
"""Reasons that void a measurement; a software power cap is a large kernel's normal state."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """One place where kernels run: the CPU, a card, or a slice of one.

    `index` is the vendor tool's own (the order of `nvidia-smi` and `rocm-smi`), which need not be
    the framework's: give a child `visible_env` and let it use its first device. `unusable` says
    why nothing may be run on it, empty when it may.
    """

    id: str
    kind: DeviceKind
    name: str
    uuid: str
    index: int = 0
    arch: str = ""
    memory_bytes: int | None = None
    cores: int | None = None
    unusable: str = ""
    note: str = ""
    nodes: tuple[str, ...] = ()
    """Its own files below /dev, empty where they are not known."""
    others: tuple[Device, ...] = ()
    """The further cards of a device that is several: see `join_cards`."""

    @property
    def cards(self) -> tuple[Device, ...]:
        """The cards that this device is: itself, but for one that is several."""
        return (replace(self, id=self.id.partition("+")[0], others=()), *self.others)

    @property
    def lock_name(self) -> str:
        """The name of its lock: the same for every user and container that sees this device."""
        return "cpu" if self.kind == "cpu" else f"gpu-{self.uuid.replace('/', '-')}"

    @property
    def lock_names(self) -> tuple[str, ...]:
        """The names of all its locks, in the order in which everybody takes them."""
        return tuple(sorted(card.lock_name for card in self.cards))

    @property
    def all_nodes(self) -> tuple[str, ...]:
        """The files below /dev of all its cards, empty where those of one are not known."""
        each = [card.nodes for card in self.cards]
        return tuple(node for nodes in each for node in nodes) if all(each) else ()

    @property
    def visible_env(self) -> dict[str, str]:
        """What a child's environment needs to see this device and no other."""
        if self.kind == "nvidia":
            return {"CUDA_VISIBLE_DEVICES": ",".join(card.uuid for card in self.cards)}
        if self.kind == "amd":
            return {"ROCR_VISIBLE_DEVICES": ",".join(
                card.uuid if card.uuid.startswith("GPU-") else str(card.index)
                for card in self.cards)}
        return {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}


def join_cards(cards: Sequence[Device]) -> Device:
    """Return several cards of one model as the one device that a target of several GPUs needs.

    Raises InputError if one is there twice.
    """
    if len({card.uuid for card in cards}) < len(cards):
        raise InputError("a card is named twice", where="+".join(card.id for card in cards))
    first, *others = cards
    return replace(first, id="+".join(card.id for card in cards), others=tuple(others))


@dataclass(frozen=True, kw_only=True)
class DeviceProcess:
    """A process that computes on a device; its name may be unknown across containers."""

    pid: int
    name: str = ""
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceState:
    """A device as it was at `at` (seconds since the epoch); None is what it does not tell.

    When a device stops answering its last good values stay, `silent_since` says since when and
    `problem` why. `processes` is None where the list cannot be had.
    """

    device: str
    at: float
    utilization_pct: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    processes: tuple[DeviceProcess, ...] | None = None
    throttle: tuple[str, ...] = ()
    compute_mode: str = ""
    problem: str = ""
    silent_since: float | None = None

    @property
    def slowed(self) -> tuple[str, ...]:
        """The reasons for which a measurement taken now would be void."""
        return tuple(reason for reason in self.throttle if reason in SLOWDOWNS)


@dataclass(frozen=True)
class Listing:
    """The devices of one vendor, and why there may be more than it could list."""

    devices: tuple[Device, ...] = ()
    problem: str = ""
