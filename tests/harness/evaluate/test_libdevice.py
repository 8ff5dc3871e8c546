"""In Triton's interpreter functions of libdevice have the values of torch's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from harness.child.interpreter.libdevice import function_of  # noqa: E402

SAME = {"__nv_tanhf": "tanh", "__nv_erff": "erf", "__nv_erf": "erf", "__nv_fast_expf": "exp",
        "__nv_log1pf": "log1p", "__nv_frsqrt_rn": "rsqrt", "__nv_tgammaf": None,
        "__nv_lgammaf": "lgamma", "__nv_erfinvf": "erfinv", "__nv_fabsf": "abs",
        "__nv_rintf": "round", "__nv_isnanf": "isnan", "__nv_isfinited": "isfinite",
        "__nv_finitef": "isfinite", "__nv_float2int_rz": "trunc"}


@pytest.mark.parametrize("symbol", SAME)
def test_function_has_the_values_of_torch(symbol: str) -> None:
    x: Any = torch.linspace(0.05, 0.95, 37, dtype=torch.float64)
    function, name = function_of(symbol), SAME[symbol]
    assert function is not None
    wanted = getattr(torch, name)(x) if name else torch.exp(torch.lgamma(x))
    assert np.allclose(np.asarray(function(x.numpy()), np.float64), wanted.double().numpy())


def test_halves_are_rounded_away_from_zero_and_directed_roundings_are_unknown() -> None:
    rounded: Any = function_of("__nv_roundf")
    assert rounded(np.array([-2.5, -0.5, 0.5, 1.4, 2.5])).tolist() == [-3.0, -1.0, 1.0, 1.0, 3.0]
    assert [function_of(name) for name in ("__nv_fadd_rz", "__nv_brev", "__nv_mulhi")] == [None] * 3
