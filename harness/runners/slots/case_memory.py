"""Calls of one runner on the cases of a class, in memory that it shares with the oracle."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from typing import Any

from harness.case import Case, Errors
from harness.isolation.rpc import Peer, decode_answer
from harness.runners.oracle_client import Oracle
from harness.runners.slots.slot_layout import PreparedAnswer, placed, return_regions

FENCES = "end", "begin"
"""Layouts of tensors that end or begin at memory that a C kernel cannot read."""


class CaseMemory:
    """Slots for calls of one class; `like` is a case of it, `tensors` replace its tensors.

    Creating it and every method raise PeerError and PeerDied.
    """

    def __init__(self, oracle: Oracle, peer: Peer, like: Case, *, slots: int = 1,
                 tensors: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.oracle, self.peer, self.slots = oracle, peer, slots
        self.id = f"{like.id}-{secrets.token_hex(4)}"
        self._has_weights = any(tensor["weight"] for tensor in like.tensors)
        self._returned: dict[int, list[dict[str, Any]]] = {}
        tensors_in_slot, end = placed(tensors or like.tensors, interpret=oracle.interpret)
        self._regions, size = return_regions(oracle.returned_shapes(like), end)
        is_fenced = any(tensor.get("layout") in FENCES for tensor in tensors_in_slot)
        shape = {"tensors": tensors_in_slot, "slots": slots, "slot_bytes": size,
                 "is_fenced": is_fenced}
        answer, [descriptor] = oracle.share("open_memory", memory=self.id, **shape)
        try:
            peer.send("prepare", [descriptor], case=self.id, memory=answer["memory"], call=False,
                      returned=self._regions, one_weight=False, keep=True, **shape)
        finally:
            os.close(descriptor)
        peer.receive()

    def shared_with(self, peer: Peer, side: str) -> CaseMemory:
        """Return the same memory for another runner of a shared process.

        `side` names the runner that has mapped it already.
        """
        other = copy(self)
        other.peer, other._returned = peer, {}
        peer.ask("prepare", case=self.id, like=side, call=True, keep=True)
        return other

    def place(self, case: Case, slot: int = 0, *, reverse: bool = False) -> None:
        """Write a case's inputs and poisoned outputs to a slot; `reverse` reverses the elements."""
        self.oracle.ask("place", memory=self.id, slot=slot, case=case.id, reverse=reverse)

    def run(self, slot: int = 0, *, touched: Collection[str] = ()) -> None:
        """Call the kernel on a slot; `touched` weights have changed since the last call on it."""
        answer = decode_answer(self.peer.ask("call", case=self.id, slot=slot,
                                             touched=sorted(touched)), PreparedAnswer)
        self._returned[slot] = [
            {**region, "dtype": tensor.dtype, "shape": list(tensor.shape),
             "nbytes": tensor.nbytes}
            for region, tensor in zip(self._regions, answer.returned, strict=False)]

    def judge(self, case: Case, slot: int = 0, known: Errors | None = None, *,
              outputs_only: bool = False) -> Errors:
        """Compare the answer of the last call on a slot with a case's expected values."""
        return self.oracle.judge(case, self.id, slot, self._returned.get(slot, []), known,
                                 outputs_only=outputs_only)

    def call(self, case: Case, slot: int = 0, known: Errors | None = None, *,
             outputs_only: bool = False, touched: Collection[str] = ()) -> Errors:
        """Place a case, call the kernel and judge its answer."""
        self.place(case, slot)
        self.run(slot, touched=touched)
        return self.judge(case, slot, known, outputs_only=outputs_only)

    def read_again(self, case: Case, known: Errors) -> Errors:
        """Judge the first slot again, with the current contents of the returned tensors."""
        self.peer.ask("store", case=self.id, slots=[0])
        return self.judge(case, 0, known, outputs_only=True)

    def close(self) -> None:
        """Free the memory; where the case has weights the runner keeps it mapped.

        Its kernel may remember them.
        """
        if not self._has_weights:
            self.peer.ask("drop", case=self.id)
        self.forget()

    def forget(self) -> None:
        """Free the oracle's part of the memory, whether or not the runner still runs."""
        self.oracle.ask("close_memory", memory=self.id)
