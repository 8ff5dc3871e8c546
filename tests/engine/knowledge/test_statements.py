"""Statements of pages about numbers, and what they say goes wrong, hold in PyTorch on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.knowledge import page_library
from tests.engine.knowledge import run_statements
from tests.support.programs import forked_program

NUMERICS = "skills/numerics"
STATED = [  # page, words on it, an expression that holds if they are right
    (NUMERICS, "| float32 | 24 bits | 3.4e38 | 1.2e-38 |",
     "has(torch.float32, 24, 3.4e38, 1.2e-38)"),
    (NUMERICS, "| bf16 | 8 bits | 3.4e38 | 1.2e-38 |", "has(torch.bfloat16, 8, 3.4e38, 1.2e-38)"),
    (NUMERICS, "| float16 | 11 bits | 65504 | 6.1e-5 |", "has(torch.float16, 11, 65504, 6.1e-5)"),
    (NUMERICS, "| fp8 e4m3 (OCP) | 4 bits | 448 | 0.016 |",
     "has(torch.float8_e4m3fn, 4, 448, 0.016)"),
    (NUMERICS, "| fp8 e5m2 (OCP) | 3 bits | 57344 | 6.1e-5 |",
     "has(torch.float8_e5m2, 3, 57344, 6.1e-5)"),
    (NUMERICS, "(gfx942 `fnuz`: 240)", "torch.finfo(torch.float8_e4m3fnuz).max == 240"),
    (NUMERICS, "stops growing at 256", "sum_of_ones(torch.bfloat16, 300) == 256"),
    (NUMERICS, "2.4e-7 x (mean / deviation)²",
     "0.06 < variance_error(1000, True) < 0.24 and variance_error(1000, False) < 1e-5"),
    (NUMERICS, "three bf16 products reach about 2^-16", "2**-18 < narrow_products(8, 3) < 2**-15"),
    (NUMERICS, "one TF32 product 2^-11", "2**-12 < narrow_products(11, 1) < 2**-10"),
    ("hardware/gfx942", "the same bits mean half of the value",
     "T(1.5).to(torch.float8_e4m3fn).view(torch.uint8).view(torch.float8_e4m3fnuz).float() == .75"),
    ("ops/quantisation", "conversion to fp8 rounds to nearest even",
     "T([1.0625, 1.1875]).to(torch.float8_e4m3fn).float().tolist() == [1, 1.25]"),
    ("ops/quantisation", "conversion to integers truncates",
     "T([-1.9, 2.7]).to(torch.int8).tolist() == [-1, 2]"),
    ("ops/quantisation", "(v + 12582912) - 12582912",
     "all((v + 12582912) - 12582912 == v.round() for v in T([.5, 1.5, 2.5, -1.5, 100.5, -7.2]))"),
    ("ops/quantisation", "100.7 becomes 100.5, then 100",
     "T(100.7).bfloat16() == 100.5 and T(100.7).bfloat16().round() == 100"),
    ("ops/quantisation", "differ in the last digit",
     "any(x / 7.0 != x * (T(1.) / 7.0) for x in torch.arange(1., 100.))"),
    ("ops/quantisation", "rows of zeros (scale 0)", "(T(0.) / T(0.)).isnan()"),
    ("ops/elementwise", "4.7e-4", "4.7e-4 < (F.gelu(x := torch.linspace(-6, 6, 1 << 20)) - "
     "F.gelu(x, approximate='tanh')).abs().max() < 4.8e-4"),
    ("ops/elementwise", "1 / (1 + inf) is 0",
     "1 / (1 + torch.exp(T(100.))) == 0 and (T(-100.) * torch.exp(T(100.))).isinf()"),
    ("ops/rope", "off by whole turns", "100_000 - float(T(1e5).bfloat16()) > 4 * math.pi"),
    ("ops/rope", "the other layout (finite, plausible, wrong)",
     "not rotated(x := torch.arange(8.), 0.5, 'pairs').allclose(rotated(x, 0.5, 'halves')) and "
     "abs(rotated(x, 0.5, 'pairs').norm() - rotated(x, 0.5, 'halves').norm()) < 1e-5"),
    ("ops/attention", "the difference NaN",
     "torch.softmax(torch.full((4,), -INF), 0).isnan().all()"),
    ("ops/paged-attention", "its share must be 0, not NaN",
     "torch.exp2(T(-INF) - T(-INF)).isnan() and torch.exp2(T(-3.4e38) - T(1.)) == 0"),
    ("ops/norm", "`eps` inside or outside of the root",
     "3 / math.sqrt(1e-6 + 1e-5) < 1 / (math.sqrt(1e-6) + 1e-5)"),
    ("ops/reduction", "empty dimensions",
     "torch.empty(0).sum() == 0 and torch.empty(0).mean().isnan()"),
    ("skills/translation", "`other=0` in a\nsoftmax", "torch.softmax(T([-9., -8., 0, 0]), 0)[:2]"
     ".allclose(torch.softmax(T([-9., -8.]), 0)) is False"),
    ("ops/linear-attention", "exp(G_i) x exp(-G_j) overflows",
     "(torch.exp(T(-90.)) * torch.exp(T(89.5))).isinf() and torch.exp(T(-0.5)) < 1"),
    ("ops/batched-gemm", "K = 0 (the result is zero", "(torch.ones(2, 0) @ torch.ones(0, 3)).eq(0)"
     ".all()"),
    ("ops/convolution", "(one more on the right)",
     "F.conv1d(T([[[1., 2, 3]]]), T([[[0., 1]]]), padding='same').tolist() == [[[2, 3, 0]]]"),
    ("ops/softmax", "softmax minus one at the\n  target",
     "torch.autograd.grad(F.cross_entropy(x := torch.arange(3.)[None].requires_grad_(), "
     "T([1])), x)[0].allclose(torch.softmax(x, 1) - T([0., 1, 0]))"),
    ("ops/reduction", "filled with 0 where a\nmaximum needs minus infinity",
     "F.pad(T([-3., -1.]), (0, 2)).max() == 0 and F.pad(T([-3., -1.]), (0, 2)).prod() == 0"),
]


@pytest.mark.parametrize(("page", "words"), [row[:2] for row in STATED])
def test_checked_words_stand_on_the_page(page: str, words: str) -> None:
    assert words in page_library.load(None).find(page).text


def test_statements_about_numbers_hold(tmp_path: Path) -> None:
    printed = forked_program.output(Path(run_statements.__file__), *(row[2] for row in STATED),
                                    folder=tmp_path, interpret=False)
    assert [row[:2] for row, line in zip(STATED, printed.split(), strict=True) if line == "0"] == []
