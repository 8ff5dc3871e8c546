"""What is special about the memory of a returned tensor is known without reading it."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("returned", "says"), [
    (lambda x: 2 * x, ""),
    (lambda x: (2 * x)[:, :2], ""),
    (lambda x: x.new_empty(0), ""),
    (lambda x: x, "an argument's memory"),
    (lambda x: x.t(), "an argument's memory"),
    (lambda x: x[1:], "an argument's memory"),
    (lambda x: (2 * x).t(), "strides [1, 3]"),
    (lambda x: x.sum(1, keepdim=True).expand(4, 3), "elements that share memory"),
])
def test_returned_memory_is_described(returned: object, says: str) -> None:
    torch = pytest.importorskip("torch")
    from harness.child.run.returned_memory import memory_of

    x = torch.ones(4, 3)
    assert memory_of(returned(x), [x, 7]) == says  # type: ignore[operator]
