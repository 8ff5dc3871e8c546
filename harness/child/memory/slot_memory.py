"""Memory that the oracle shares with one runner: slots, each with the tensors of one call.

Every tensor has a guard zone of poison before and after it. Outputs have another poison than
inputs, so that what a kernel computes from one never equals the other.
"""

from __future__ import annotations

import math
from typing import Any

POISON = 0xFF
"""A quiet NaN in every float width, -1 or 255 in integers."""
LARGE_POISON = 0x7B
"""A large number in every float width: unlike NaN, it counts in comparisons."""
GUARD_BYTES = 4096


class SlotMemory:
    """Slots of `slot_bytes` bytes; a tensor lies at `offset` in each, with the dtype `stored`.

    `shared` is the memory, and its bytes as an array. With `is_fenced` in the job the two poisons
    are exchanged: a kernel that reads beside a tensor then gets other values than in other cases.
    """

    def __init__(self, arrays: Any, job: dict[str, Any], shared: tuple[Any, Any]) -> None:
        self.arrays = arrays
        self.poison, self.beside_outputs = (LARGE_POISON, POISON) if job.get("is_fenced") else (
            POISON, LARGE_POISON)
        slots, slot_bytes = job["slots"], job["slot_bytes"]
        self.memory, raw = shared
        self.raw = raw[:slots * slot_bytes].reshape(slots, slot_bytes)
        self.tensors = [tensor for tensor in job["tensors"] if tensor["role"] != "scalar"]
        self.outputs = [tensor for tensor in self.tensors if tensor["role"] != "input"]
        for zone, poison, _, _ in self._zones(0, slots):
            zone[:] = poison

    @property
    def description(self) -> dict[str, Any]:
        return {"kind": self.memory.kind, "nbytes": self.memory.nbytes}

    def rows(self, tensor: dict[str, Any]) -> Any:
        """Return the values of a tensor in all slots, one row for each slot."""
        first = tensor["offset"]
        return self.arrays.typed(self.raw[:, first:first + tensor["nbytes"]], tensor["stored"])

    def view(self, tensor: dict[str, Any], slot: int) -> Any:
        """Return a tensor in a slot, in its shape; with a `layout` it is a strided view."""
        return self.arrays.strided(self.rows(tensor)[slot], tensor["shape"],
                                   tensor.get("layout", ""))

    def place(self, slot: int, values: dict[str, Any], *, reverse: bool = False) -> None:
        """Write inputs to a slot, and poison over all other bytes of it.

        With `reverse` their elements are written in reverse order, except where a tensor has a
        structure, which it would lose, or recorded values.
        """
        self.raw[slot] = self.poison
        for zone, poison, _, _ in self._zones(slot, slot + 1):
            if poison != self.poison:
                zone[:] = poison
        for tensor in self.tensors:
            if tensor["role"] != "output":
                flat = values[tensor["name"]]
                if reverse and not (tensor.get("structure") or tensor.get("data")):
                    flat = self.arrays.reversed(flat)
                self.arrays.put(self.view(tensor, slot), flat.reshape(tensor["shape"]))
        self.arrays.finish()

    def words(self, tensor: dict[str, Any]) -> Any:
        """Return the bytes of a tensor in all slots as integers, one row for each slot."""
        first, size = tensor["offset"], math.gcd(8, tensor["nbytes"])
        return self.arrays.typed(self.raw[:, first:first + tensor["nbytes"]], f"int{8 * size}")

    def guards(self, first: int, end: int) -> list[Any]:
        """Return for each zone of poison in a range of slots whether something was written.

        Each answer is a vector of one element, which a GPU may still have to compute; `damage`
        says what was written.
        """
        return [self.arrays.differ(zone, poison)
                for zone, poison, _, _ in self._zones(first, end)]

    def damage(self, first: int, end: int) -> str:
        """Return as text the first write outside of tensors in the slots from `first` up to `end`.

        Empty if nothing was written there.
        """
        written = self.arrays.fetched(self.guards(first, end))
        for (zone, poison, before, behind), [is_written] in zip(self._zones(first, end), written,
                                                                strict=True):
            if is_written and before == behind:
                return f"wrote between the elements of {before}"
            if is_written:
                half = zone[:, :zone.shape[1] // 2 if behind else None]
                is_before = before and any(*self.arrays.fetched([
                    self.arrays.differ(half, poison)]))
                return f"wrote past the end of {before}" if is_before \
                    else f"wrote before the beginning of {behind}"
        return ""

    def _zones(self, first: int, end: int) -> list[tuple[Any, int, str, str]]:
        """Return each zone in the slots of a range with its poison and the tensors around it.

        The first half of a zone between two tensors belongs to the first of them. The halves are
        separate zones if they have different poison.
        """
        raw, begin, before, poison = self.raw[first:end], 0, "", self.poison
        zones = []
        for tensor in self.tensors:
            zone = raw[:, begin:tensor["offset"]]
            zone_poison = self.poison if tensor["role"] == "input" else self.beside_outputs
            if before and zone_poison != poison:
                half = zone.shape[1] // 2
                zones += [(zone[:, :half], poison, before, ""),
                          (zone[:, half:], zone_poison, "", tensor["name"])]
            else:
                zones.append((zone, zone_poison, before, tensor["name"]))
            begin, before, poison = tensor["offset"] + tensor["nbytes"], tensor["name"], zone_poison
            if tensor.get("layout") == "columns" and tensor["role"] != "input":
                size = tensor["nbytes"] // max(1, 2 * math.prod(tensor["shape"]))
                columns = raw[:, tensor["offset"]:begin].reshape(end - first, -1, 2, size)
                zones.append((columns[:, :, 1], zone_poison, before, before))
        return [*zones, (raw[:, begin:begin + GUARD_BYTES], poison, before, "")]

    def is_changed(self, tensor: dict[str, Any], slot: int, values: Any) -> bool:
        """Return whether an input has other contents than these."""
        return not self.arrays.equal(self.view(tensor, slot), values.reshape(tensor["shape"]))

    def returned(self, region: dict[str, Any], slot: int) -> Any:
        """Return a value that a kernel returned, from where the runner put it."""
        count = math.prod(region["shape"])
        raw = self.raw[slot, region["offset"]:region["offset"] + region["nbytes"]]
        return self.arrays.typed(raw, region["dtype"])[:count].reshape(region["shape"])

    def close(self) -> None:
        self.raw = None
        self.memory.close()
