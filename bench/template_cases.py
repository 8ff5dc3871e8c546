"""Cases of the templates in knowledge/backend: arguments, references in float64, and errors."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
import yaml

FOLDER = Path(__file__).resolve().parents[1] / "knowledge" / "backend" / "triton"
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Allowed errors of a value of size 1; a template's `tolerance` multiplies the one of float32."""


def table() -> dict[str, Any]:
    """Return the table of templates; missing values have their defaults."""
    made = yaml.safe_load((FOLDER / "templates.yaml").read_text())
    made["templates"] = [{
        "file": f"{each['name']}.py", "entry": each["name"], "bound": "memory",
        "dtypes": ["float32", "float16", "bfloat16"], **each} for each in made["templates"]]
    return made


def chosen(only: Collection[str] = (), text: str = "") -> list[tuple[dict[str, Any], list[str]]]:
    """Return templates with their bench cases: all, or those of some names whose text or dtypes
    have `text`. Raises ValueError if there is none.
    """
    every = table()["templates"]
    if unknown := sorted(set(only) - {template["name"] for template in every}):
        raise ValueError(f"there is no template {', '.join(unknown)}")
    found = [(template, [case for case in template["bench"] if text in case
                         or text in dtypes(template, case)])
             for template in every if not only or template["name"] in only]
    if not any(cases for _, cases in found):
        raise ValueError(f"no case of {', '.join(only) or 'any template'} has {text!r} in its text "
                         "or as a dtype")
    return [(template, cases) for template, cases in found if cases]


def dtypes(template: dict[str, Any], case: str) -> set[str]:
    """Return the names of the dtypes of a bench case: `bfloat16` and `bf16`, ..."""
    dtype = getattr(torch, template.get("bench_dtype", "float32"))
    try:
        values = arguments(getattr(load(FOLDER / template["file"]), template["entry"]), case, dtype,
                           "meta").values()
    except NotImplementedError:  # an operation without a form for tensors without data
        values = [dtype]
    names = {str(getattr(value, "dtype", value)).removeprefix("torch.") for value in values
             if isinstance(value, torch.Tensor | torch.dtype)}
    short = {name.partition("_")[0] for name in names}
    return names | short | {re.sub("^float", "fp", name).replace("bfloat", "bf") for name in short}


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(entry: Any, case: str, dtype: torch.dtype = torch.float32, device: str = "cpu",
              empty: bool = False) -> dict[str, Any]:
    """Return all arguments of a case, with defaults; if `empty`, random tensors stay unset."""
    def make(draw):
        if empty:
            draw = torch.empty
        return lambda *shape: draw(shape, device=device, dtype=dtype)

    def indices(end, *shape):
        return torch.randint(0, end, shape, device=device)

    names = {"randn": make(torch.randn), "rand": make(torch.rand), "indices": indices,
             "ints": lambda end, *shape: indices(end, *shape).to(dtype), "torch": torch,
             "dtype": dtype}
    bound = inspect.signature(entry).bind(**eval(f"dict({case})", names))
    bound.apply_defaults()
    return dict(bound.arguments)


def reference(template: dict[str, Any], given: dict[str, Any], wide: bool = True) -> Any:
    """Return what PyTorch computes, in float64 if `wide`; `where` names parts of the expression.

    The reference of a `rounded` template never uses float64, which would round to other steps.
    """
    wide = wide and not template.get("rounded")
    names = {name: value.double() if wide and torch.is_tensor(value) and value.is_floating_point()
             else value for name, value in given.items()}
    names |= {"torch": torch, "F": torch.nn.functional}
    for name, text in template.get("where", {}).items():
        names[name] = eval(text, names)
    return eval(template["reference"], names)


def error(template: dict[str, Any], given: dict[str, Any], result: Any, expected: Any) -> float:
    """Return the largest error as a multiple of the error allowed for the result's dtype.

    The allowed error is a share of |expected| + `size`, an expression of the template: a sum of
    many values may be small and yet carry their rounding errors. `tolerance` multiplies it for
    float32 results only. For `rounded` results the return value is instead the number of values
    per thousand that differ (by more than the allowed error, if they are floats).
    """
    if isinstance(result, tuple | list):
        return max(error(template, given, *pair) for pair in zip(result, expected, strict=True))
    assert result.shape == expected.shape, f"{tuple(result.shape)}, not {tuple(expected.shape)}"
    if not result.numel():
        return 0.0
    if template.get("rounded") and result.dtype not in TOLERANCE:
        return float((result.float() != expected.float()).double().mean()) * 1e3
    if not result.is_floating_point():
        return float((result != expected).any()) * 1e9
    assert torch.equal(result.isnan(), expected.isnan())
    scale = template.get("tolerance", 1) if result.dtype == torch.float32 else 1
    size = eval(str(template.get("size", 1)), {**given, "results": expected.numel()})
    allowed = TOLERANCE[result.dtype] * scale * (expected.abs() + size)
    away = torch.where(result == expected, 0.0, (result.double() - expected).abs() / allowed)
    away = away.nan_to_num(0.0, posinf=1e9)
    return float((away > 1).double().mean() * 1e3 if template.get("rounded") else away.max())
