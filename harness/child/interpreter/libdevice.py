"""Computes functions of CUDA's libdevice in Triton's interpreter, which lacks them.

Each is computed in float64 and, for float32, rounded once, which is at least as exact as libdevice.
Functions that round in a given direction, and those on bits, stay unsupported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

MODULES = "triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice"
"""The second module's functions know which dtypes they take and return; the first's are empty."""
PREFIX = "__nv_"


def _each(function: Callable[[float], float]) -> Callable[..., Any]:
    def of_finite(value: float) -> float:
        try:
            return function(value)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return np.vectorize(of_finite, otypes=[np.float64])


def _round(x: Any) -> Any:
    """Round halves away from zero, as C does."""
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1.0, x), 0.0)


def _special(name: str) -> Callable[..., Any]:
    def compute(x: Any) -> Any:
        import torch

        function = getattr(torch.special, name)
        return function(torch.from_numpy(np.array(x, np.float64))).numpy()

    return compute


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (
        "floor", "ceil", "trunc", "rint", "sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2",
        "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "hypot", "copysign",
        "fmod", "fabs", "nextafter", "signbit", "abs", "isnan", "isinf", "isfinite")},
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "pow": np.power,
    "powi": np.power, "exp10": lambda x: np.power(10.0, x), "ldexp": lambda x, n: x * np.exp2(n),
    "nearbyint": np.rint, "round": _round, "llabs": np.abs, "llrint": np.rint, "llround": _round,
    "finite": np.isfinite, "fdim": lambda x, y: np.maximum(x - y, 0.0),
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)),
    "rsqrt": lambda x: 1 / np.sqrt(x), "rcp": lambda x: 1 / x, "fma": lambda x, y, z: x * y + z,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "divide": np.divide,
    "erf": _each(math.erf), "erfc": _each(math.erfc), "lgamma": _each(math.lgamma),
    "tgamma": _each(math.gamma), "erfinv": _special("erfinv"), "normcdf": _special("ndtr"),
}
"""By the function's name in libdevice, without the parts that tell its dtype and rounding."""
CONVERSIONS = {"n": np.rint, "z": np.trunc, "u": np.ceil, "d": np.floor}
_CONVERSION = re.compile(r"(?:float|double)2(?:u?int|u?ll)_r([nzud])")
_SYMBOL = re.compile(r"(?:fast_)?([fd]?)(\w+?)([fd]?)(?:_rn)?")


def function_of(symbol: str) -> Callable[..., Any] | None:
    """Return what computes a function of libdevice, such as `__nv_tanhf`; None if nothing does."""
    name = symbol.removeprefix(PREFIX)
    if conversion := _CONVERSION.fullmatch(name):
        return CONVERSIONS[conversion[1]]
    if (parts := _SYMBOL.fullmatch(name)) is None:
        return None
    before, middle, after = parts.groups()
    names = (before + middle + after, before + middle, middle + after, middle)
    return next((FUNCTIONS[each] for each in names if each in FUNCTIONS), None)


def install() -> None:
    """Let kernels that this process interprets call the functions, by whatever name they import.
    """
    from triton.language import core
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder
    if not hasattr(interpreter, "interpreter_semantic") or (  # Triton before 3.4
            builder.create_extern_elementwise.__module__ == __name__):
        return

    def create_extern_elementwise(self: Any, library: str, path: str, symbol: str,
                                  args: list[Any], kind: Any, is_pure: bool) -> Any:
        if (function := function_of(symbol)) is None:
            raise NotImplementedError(f"{symbol.removeprefix(PREFIX)} of libdevice")
        wide = [arg.data.astype(np.float64) if arg.data.dtype.kind == "f" else arg.data
                for arg in args]
        with np.errstate(all="ignore"):
            values = np.asarray(function(*wide))
        return interpreter.TensorHandle(
            values.astype(interpreter._get_np_dtype(kind.scalar)), kind.scalar)

    def interpreted(function: Any) -> Any:
        def call(*args: Any) -> Any:
            values = [core._unwrap_if_constexpr(each) for each in args]
            return function(*values, _semantic=interpreter.interpreter_semantic)

        return call

    modules = [import_module(name) for name in MODULES]
    known = {name: interpreted(function) for name, function in vars(modules[-1]).items()
             if core.is_builtin(function)}
    original = interpreter._patch_lang

    def patch_lang(kernel: Any) -> Any:
        names = kernel.__globals__  # it may have functions of a copy of the module
        names.update({name: known[value.__name__] for name, value in names.items()
                      if getattr(value, "__module__", "") in MODULES
                      and getattr(value, "__name__", "") in known})
        return original(kernel)

    builder.create_extern_elementwise = create_extern_elementwise
    interpreter._patch_lang = patch_lang
    for module in modules:
        for name, function in known.items():
            setattr(module, name, function)
