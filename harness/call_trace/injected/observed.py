"""Describes the values of a watched call as literals of Python: tensors, numbers, constants."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LONGEST = 80
"""The most characters of a recorded string, and the most entries of a recorded tuple."""
WORDS = 1 << 20
"""How many words of eight bytes a digest sums at a time."""
KEPT_BYTES = 64 << 20
"""The most bytes of a call's tensors that are copied before it runs."""
RECORDED = 1 << 14
"""The most values of a tensor of integers that are recorded."""
CLOSE = 0.1
"""Relative distance below which a tensor counts as an attempt to compute the same values."""


def torch_module() -> Any:
    return sys.modules.get("torch")


def is_tensor(value: Any) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def describe(value: Any) -> tuple[Any, ...]:
    """Return a value's kind and what identifies it.

    The descriptions of a call's values are together the call's shape.
    """
    if is_tensor(value):
        torch = torch_module()
        if value.layout is not torch.strided or value.is_complex():
            return "other", f"a tensor of {value.layout}, {value.dtype}"
        return ("tensor", str(value.dtype).removeprefix("torch."), tuple(map(int, value.shape)),
                tuple(map(int, value.stride())))
    if value is None or isinstance(value, (bool, str)):
        return ("literal", value if value is None or isinstance(value, bool) else value[:LONGEST])
    if isinstance(value, (int, float)):
        return "number", _plain(value)
    torch = torch_module()
    for kind in ("dtype", "device"):
        if torch is not None and isinstance(value, getattr(torch, kind, ())):
            return kind, str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple)) and len(value) <= LONGEST:
        if all(isinstance(entry, (int, float)) for entry in value):
            return "tuple", tuple(map(_plain, value))
        inner = sorted({_name(entry) for entry in value})
        return "other", f"a {type(value).__name__} of {len(value)}: {', '.join(inner)}"[:LONGEST]
    return "other", _name(value)


def kind(described: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return what calls share that one task can describe: dtypes, dimensions, constants."""
    return tuple((each[1], len(each[2])) if each[0] == "tensor" else
                 each[0] if each[0] in ("number", "tuple") else each for each in described)


def _name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _plain(value: Any) -> Any:
    """Return a number as a literal can hold it, None if it is not finite."""
    number = int(value) if isinstance(value, int) else float(value)
    return number if number - number == 0 else None


def contents(value: Any) -> tuple[Any, ...] | None:
    """Return a tensor's (least, largest, is ascending, is without repetitions); None if empty.

    The last two are for integers only, in row-major order of the shape.
    """
    torch = torch_module()
    if not value.numel():
        return None
    with torch.no_grad():
        flat = value.detach().reshape(-1)
        flat = flat.to(torch.uint8) if flat.dtype is torch.bool else flat
        flat = flat.float() if flat.dtype.itemsize == 1 and flat.is_floating_point() else flat
        least, largest = (_plain(end.item()) for end in torch.aminmax(flat))
        steps = flat[1:] - flat[:-1] if not flat.is_floating_point() else None
        is_ascending = steps is not None and steps.numel() > 1 and bool((steps >= 0).all())
        is_distinct = steps is not None and steps.numel() > 1 and \
            flat.unique().numel() == flat.numel()
        return least, largest, is_ascending, is_distinct


def integers(value: Any) -> list[int] | None:
    """Return the values of a tensor of integers, None where it is large or of another dtype."""
    if not is_tensor(value) or value.is_floating_point() or value.numel() > RECORDED:
        return None
    with torch_module().no_grad():
        return list(map(int, value.detach().reshape(-1).tolist()))


def digest(value: Any) -> tuple[int, ...]:
    """Return sums over a tensor's bytes, computed on its device."""
    torch = torch_module()
    with torch.no_grad():
        raw = value.detach().contiguous().clone().reshape(-1).view(torch.uint8)
        whole = raw.numel() // 8 * 8
        words = raw[:whole].view(torch.int64)
        factors = torch.arange(1, 2 * min(WORDS, words.numel()) + 1, 2, device=raw.device)
        sums = [int((part * factors[:part.numel()]).sum()) for part in words.split(WORDS)
                if part.numel()]
        return (*sums, *raw[whole:].tolist())


def copies(values: list[Any]) -> list[Any]:
    """Return copies of the tensors among values, None for others; all None if these are large."""
    tensors = [value for value in values if is_tensor(value)]
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors) > KEPT_BYTES:
        return [None] * len(values)
    return [value.detach().clone() if is_tensor(value) else None for value in values]


def is_module(value: Any) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(value, torch.nn.Module)


def same_memory(left: Any, right: Any) -> bool:
    return bool(is_tensor(left) and is_tensor(right) and left.numel()
                and left.data_ptr() == right.data_ptr() and left.shape == right.shape)


def equal(left: Any, right: Any) -> bool:
    """Return whether a tensor has the values of another."""
    return bool(is_tensor(left) and is_tensor(right) and left.shape == right.shape
                and left.dtype == right.dtype and torch_module().equal(left, right))


def close(value: Any, output: Any) -> bool:
    """Return whether a tensor has about the values of an output, in memory of its own."""
    torch = torch_module()
    if not (is_tensor(value) and is_tensor(output)) or value.shape != output.shape \
            or same_memory(value, output) or value.numel() * 8 > KEPT_BYTES:
        return False
    with torch.no_grad():
        got, want = (each.detach().to("cpu", torch.float64) for each in (value, output))
        finite = torch.isfinite(got) & torch.isfinite(want)
        got, want = got[finite], want[finite]
        size = float(want.norm())
        return size > 0 and float((got - want).norm()) <= CLOSE * size
