"""Slots of timed calls use the card's free memory; oracle kernels write only to card memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
GIB = 1 << 30
ROUNDING = 64 << 20
"""Bytes by which free memory may exceed the expected value, as allocations are rounded."""


@pytest.fixture
def on_card(tmp_path: Any) -> Any:
    from harness.child.oracle.arrays_torch import TorchArrays

    return TorchArrays("cuda:0", ["float32"], str(tmp_path))


@pytest.fixture
def kept(on_card: Any) -> Iterator[list[Any]]:
    """Tensors that are freed after the test, also if it fails: other tests need the card."""
    tensors: list[Any] = []
    yield tensors
    tensors.clear()
    on_card.torch.cuda.empty_cache()


def free_bytes(cuda: Any) -> int:
    """Return the card's free bytes once they are stable for 1 s, as earlier tests may free some."""
    before, until = -1, time.monotonic() + 20
    while (free := int(cuda.mem_get_info()[0])) != before and time.monotonic() < until:
        before = free
        time.sleep(1)
    return free


def test_memory_that_torch_keeps_is_freed_for_slots(on_card: Any, kept: list[Any]) -> None:
    cuda = on_card.torch.cuda
    kept.append(on_card.torch.empty(free_bytes(cuda) - 2 * GIB, dtype=on_card.torch.uint8,
                                    device="cuda"))
    assert on_card.room(4 * GIB) <= 2 * GIB + ROUNDING  # tensors use the rest
    kept.clear()
    assert cuda.mem_get_info()[0] <= 2 * GIB + ROUNDING  # torch still caches the rest
    assert on_card.room(4 * GIB) == 4 * GIB
    [(memory, raw)] = on_card.share(4 * GIB, 1)
    assert memory.kind == "device" and raw.is_cuda
    memory.close()


def test_both_sides_take_turns_at_the_parts_of_their_memory(on_card: Any) -> None:
    """The parts of a side's memory are received as one tensor, apart from the other side's."""
    from harness.child.memory.device_memory import MOST_PARTS, DeviceMemory

    shared = on_card.share(MOST_PARTS * (40 << 20), 2)
    for value, (memory, raw) in enumerate(shared, start=1):
        assert len(memory.files) == MOST_PARTS and len(raw) == memory.nbytes
        raw[:] = value
    for value, (memory, _) in enumerate(shared, start=1):
        received = DeviceMemory.received(memory.take_files(), memory.nbytes)
        assert bool((received.tensor() == value).all())
        received.tensor()[-1] = 7
        on_card.torch.cuda.synchronize()
        received.close()
    assert [int(raw[-1]) for _, raw in shared] == [7, 7]
    for memory, _ in shared:
        memory.close()


def test_full_card_gives_no_slots_in_other_memory(on_card: Any) -> None:
    """Slots that do not fit on the card are an error."""
    with pytest.raises(MemoryError, match="out of memory"):
        on_card.share(1 << 50, 1)


def test_kernels_leave_memory_of_the_machine_alone(on_card: Any) -> None:
    torch = on_card.torch
    tape, factors = torch.ones(8, device="cuda"), torch.ones(8, device="cuda")
    for device, written in (("cuda", True), ("cpu", False)):
        view = torch.zeros(2, 4, device=device)
        places = torch.zeros(2, 2, dtype=torch.int64, device="cuda")
        assert on_card.write_windows(view, tape, factors, places, None, None) == written
        on_card.finish()
        assert bool((view == 1).all()) == written
