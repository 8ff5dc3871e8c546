"""Whether anything but the candidate's own word bears a gain out: the seam for GPU kernel time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from harness.device import Device
from harness.reported.series import Series
from harness.reported.side import Side
from harness.verdict import Finding

UNCONFIRMED = Finding(rule="reported", severity="flag", detail=(
    "reported by the candidate's own benchmark: not confirmed by kernel time"))


class Confirm(Protocol):
    """Looks at a gain that the benchmark reports; the sides can still be run."""

    def __call__(self, device: Device, sides: Mapping[str, Side],
                 series: Series) -> Finding | None:
        """Return what is to be found fault with, None where kernel time bears the gain out."""
        ...


def unconfirmed(device: Device, sides: Mapping[str, Side], series: Series) -> Finding | None:
    """Return that nobody has looked: what a person has to weigh."""
    return UNCONFIRMED
