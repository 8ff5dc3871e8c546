"""Evaluates statements about numbers, given as Python expressions, and prints whether they hold."""

from __future__ import annotations

import math
import sys

import torch
import torch.nn.functional as F  # noqa: F401  (expressions use it)

INF = math.inf
T = torch.tensor


def has(dtype: torch.dtype, digits: int, largest: float, smallest: float) -> bool:
    """Return whether a type has so many binary digits, and these numbers as its limits."""
    info = torch.finfo(dtype)
    return info.eps == 2.0 ** (1 - digits) and all(
        abs(value / stated - 1) < 0.03 for value, stated in ((info.max, largest),
                                                             (info.smallest_normal, smallest)))


def sum_of_ones(dtype: torch.dtype, count: int) -> float:
    total = torch.zeros((), dtype=dtype)
    for _ in range(count):
        total = total + torch.ones((), dtype=dtype)
    return float(total)


def variance_error(mean: float, in_one_pass: bool) -> float:
    """Return the relative error of a float32 variance of values with deviation 1."""
    values = mean + torch.randn(1 << 20, generator=torch.Generator().manual_seed(0))
    center = values.mean()
    found = (values * values).mean() - center * center if in_one_pass else \
        ((values - center) ** 2).mean()
    return abs(float(found) / float(values.double().var()) - 1)


def narrow_products(dtype_bits: int, count: int) -> float:
    """Return the largest relative error of products whose factors are split into `count` parts."""
    a, b = 1 + torch.rand(2, 10_000, generator=torch.Generator().manual_seed(0))
    parts = [(cut(value, dtype_bits), cut(value - cut(value, dtype_bits), dtype_bits))
             for value in (a, b)]
    (high_a, low_a), (high_b, low_b) = parts
    terms = (high_a.double() * high_b, high_a.double() * low_b, low_a.double() * high_b)
    exact = a.double() * b
    return float(((sum(terms[:count]) - exact) / exact).abs().max())


def rotated(values: torch.Tensor, angle: float, layout: str) -> torch.Tensor:
    """Rotate pairs of neighbours, or of the two halves, by an angle."""
    x, y = values.view(-1, 2).T if layout == "pairs" else values.view(2, -1)
    turned = torch.stack((x * math.cos(angle) - y * math.sin(angle),
                          y * math.cos(angle) + x * math.sin(angle)))
    return (turned.T if layout == "pairs" else turned).reshape(-1)


def cut(value: torch.Tensor, digits: int) -> torch.Tensor:
    """Round float32 to so many binary digits."""
    mantissa, exponent = torch.frexp(value)
    return torch.ldexp(torch.round(mantissa * 2.0 ** digits) / 2.0 ** digits, exponent)


if __name__ == "__main__":
    for expression in sys.argv[1:]:
        print(int(bool(eval(expression))))
