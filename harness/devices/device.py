"""Types of a device and its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from harness.errors import InputError

DeviceKind = Literal["cpu", "nvidia", "amd"]

SLOWDOWNS = frozenset({"hw-slowdown", "sw-thermal", "hw-thermal", "hw-power-brake", "throttled"})
"""Throttle reasons that void a measurement. The software power cap is normal and not among them."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """A place where kernels run: the CPU, a card, a MIG instance, or several cards together.

    `index` is the number that `nvidia-smi` or `rocm-smi` shows; a framework may count otherwise, so
    give a child `visible_env` and let it use its first device. `unusable` says why nothing can run
    on the device; empty if it is usable.
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
    """Device files below /dev of this card alone; empty if they are not known."""
    others: tuple[Device, ...] = ()
    """The second and further cards of a device made by `join_cards`."""

    @property
    def cards(self) -> tuple[Device, ...]:
        """All cards of this device: itself, or each of those that were joined."""
        return (replace(self, id=self.id.partition("+")[0], others=()), *self.others)

    @property
    def label(self) -> str:
        """The model's name; for several cards, their number before it."""
        return f"{len(self.cards)} x {self.name}" if self.others else self.name

    @property
    def lock_name(self) -> str:
        """Name of the device lock, equal for all users and containers that see this device."""
        return "cpu" if self.kind == "cpu" else f"gpu-{self.uuid.replace('/', '-')}"

    @property
    def lock_names(self) -> tuple[str, ...]:
        """Lock names of all cards, sorted: all processes take them in this order."""
        return tuple(sorted(card.lock_name for card in self.cards))

    @property
    def all_nodes(self) -> tuple[str, ...]:
        """Device files of all cards; empty if those of any card are not known."""
        each = [card.nodes for card in self.cards]
        return tuple(node for nodes in each for node in nodes) if all(each) else ()

    @property
    def visible_env(self) -> dict[str, str]:
        """Environment variables that limit a child to this device."""
        if self.kind == "nvidia":
            return {"CUDA_VISIBLE_DEVICES": ",".join(card.uuid for card in self.cards)}
        if self.kind == "amd":
            return {"ROCR_VISIBLE_DEVICES": ",".join(
                card.uuid if card.uuid.startswith("GPU-") else str(card.index)
                for card in self.cards),
                "HIP_VISIBLE_DEVICES": ",".join(map(str, range(len(self.cards))))}
        return {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}


def join_cards(cards: Sequence[Device]) -> Device:
    """Return one device made of cards of one model. Raises InputError if one is named twice."""
    if len({card.uuid for card in cards}) < len(cards):
        raise InputError("a card is listed twice", where="+".join(card.id for card in cards))
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
    """A device at time `at` (seconds since the epoch); None marks values it does not report.

    When a device stops answering, its last good values stay; `silent_since` says since when and
    `problem` why. `processes` is None where the list is not available.
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
    processes: tuple[DeviceProcess, ...] | None = None
    throttle: tuple[str, ...] = ()
    compute_mode: str = ""
    problem: str = ""
    silent_since: float | None = None

    @property
    def slowed(self) -> tuple[str, ...]:
        """Throttle reasons that would void a measurement taken now."""
        return tuple(reason for reason in self.throttle if reason in SLOWDOWNS)


@dataclass(frozen=True)
class Listing:
    """The devices of one vendor; `problem` says why the list may be incomplete."""

    devices: tuple[Device, ...] = ()
    problem: str = ""
