"""Unusual memory of returned tensors, such as an argument's, is recognised by its addresses."""

from __future__ import annotations

import pytest

ARGUMENT, SHARED = "an argument's memory", "elements that share memory"


@pytest.mark.parametrize(("returned", "description"), [
    (lambda x: 2 * x, ""),
    (lambda x: (2 * x)[:, :2], ""),
    (lambda x: x.sum(), ""),
    (lambda x: x.new_empty(0), ""),
    (lambda x: x, ARGUMENT),
    (lambda x: x.t(), ARGUMENT),
    (lambda x: x[1:], ARGUMENT),
    (lambda x: x[1:].numpy(), ARGUMENT),
    (lambda x: (2 * x).t(), "strides [1, 3]"),
    (lambda x: (2 * x)[:, ::2], ""),
    (lambda x: (2 * x)[0], ""),
    (lambda x: (2 * x)[:, 0], ""),
    (lambda x: x.sum(1, keepdim=True).expand(4, 3), SHARED),
    (lambda x: (2 * x).reshape(-1).unfold(0, 4, 1), SHARED),
    (lambda x: (2 * x).as_strided((2, 2, 2), (4, 2, 1)), ""),
])
def test_returned_memory_is_described(returned: object, description: str) -> None:
    torch = pytest.importorskip("torch")
    from harness.child.run.returned_memory import memories_of

    x = torch.ones(4, 3)
    value = torch.as_tensor(returned(x))  # type: ignore[operator]
    assert memories_of([value], [x, 7]) == [description]


def test_storage_cannot_hide_its_address() -> None:
    torch = pytest.importorskip("torch")
    from harness.child.run.returned_memory import memories_of

    x, other = torch.ones(4, 3), torch.ones(4, 3)
    storage = x.untyped_storage()
    storage.data_ptr, x.untyped_storage = other.data_ptr, other.untyped_storage
    assert memories_of([x[1:]], [x]) == [ARGUMENT]


def test_outputs_that_share_memory_are_described() -> None:
    torch = pytest.importorskip("torch")
    from harness.child.run.returned_memory import memories_of

    y = torch.ones(4, 3)
    assert memories_of([y, y.clone(), y], []) == ["", "", "another output's memory"]
    assert memories_of([y[:2], y[2:], y[:0]], []) == ["", "", ""]
    z = torch.ones(2, 4, 6)
    assert memories_of(z.chunk(3, -1), []) == ["", "", ""], "an honest fused product's parts"
    assert memories_of(z.split([4, 2], -1)[::-1], []) == ["", ""]
    assert memories_of([z[..., :3], z[..., 2:]], []) == ["", "another output's memory"]
    assert memories_of([z[:, :2], z[:, 1:3]], []) == ["", "another output's memory"]


def test_storage_of_an_argument_contains_nothing_but_the_argument() -> None:
    torch = pytest.importorskip("torch")
    from harness.child.run.load_python import TensorBuffer

    slot = torch.zeros(4096, dtype=torch.uint8)
    x = TensorBuffer({"role": "input", "weight": False, "shape": [4, 3], "offset": 64, "nbytes": 48,
                      "stored": "float32"}, slot)
    x.tensor[1, 1] = 5
    assert slot[64 + 16:64 + 20].view(torch.float32) == 5
    assert x.tensor.untyped_storage().nbytes() == 48
