"""Checks Triton templates: `run` against float64 in the interpreter, `compile` for two GPUs.

`python run_templates.py run|compile|expressions MOST [NAME ...]`: the first MOST cases of each.
"""

from __future__ import annotations

import importlib.util
import inspect
import operator  # noqa: F401  (targets name it)
import sys
import tempfile
from pathlib import Path

import torch
import yaml

FOLDER = Path(__file__).resolve().parents[3] / "knowledge" / "backend" / "triton"
TABLE = yaml.safe_load((FOLDER / "templates.yaml").read_text())
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(entry, case: str, dtype=torch.float32, device="cpu", empty=False) -> dict:
    """Return all arguments of a case, with defaults, in a dtype and on a device."""
    def randn(*shape):
        return torch.empty(shape, dtype=dtype) if empty else torch.randn(
            shape, device=device, dtype=dtype)

    def rand(*shape):
        return torch.empty(shape, dtype=dtype) if empty else torch.rand(
            shape, device=device, dtype=dtype)

    def ints(most, *shape):
        return indices(most, *shape).to(dtype)

    def indices(most, *shape):
        return torch.randint(0, most, shape, device=device)

    names = {"randn": randn, "rand": rand, "ints": ints, "indices": indices, "torch": torch}
    bound = inspect.signature(entry).bind(**eval(f"dict({case})", names))
    bound.apply_defaults()
    return dict(bound.arguments)


def reference(template: dict, given: dict, wide: bool = True):
    """Return what PyTorch computes, in float64 if `wide`; `where` names parts of the expression."""
    names = {name: value.double() if wide and torch.is_tensor(value) and value.is_floating_point()
             else value for name, value in given.items()}
    names |= {"torch": torch, "F": torch.nn.functional}
    for name, text in template.get("where", {}).items():
        names[name] = eval(text, names)
    return eval(template["reference"], names)


def error(result, expected, scale=1.0) -> float:
    """Return the largest error in units of what the dtype's tolerance allows."""
    if isinstance(result, tuple | list):
        return max(error(r, e, scale) for r, e in zip(result, expected, strict=True))
    assert result.shape == expected.shape, f"{tuple(result.shape)}, not {tuple(expected.shape)}"
    if not result.numel():
        return 0.0
    if not result.is_floating_point():
        return float((result != expected).any()) * 1e9
    assert torch.equal(result.isnan(), expected.isnan())
    allowed = TOLERANCE[result.dtype] * scale * (expected.abs() + 1)
    away = torch.where(result == expected, 0.0, (result.double() - expected).abs() / allowed)
    return float(away.nan_to_num(0.0, posinf=1e9).max())


def run(template: dict, module, most: int) -> None:
    entry = getattr(module, template["entry"])
    for knobs in ({}, template.get("small", {})):
        for name, value in knobs.items():
            assert hasattr(module, name), name
            setattr(module, name, value)
        for number, case in enumerate(template["tests"][:most]):
            narrow = [torch.float16, torch.bfloat16][number % 2]
            for dtype in (torch.float32, narrow) if number < 2 or most > 99 else (torch.float32,):
                torch.manual_seed(0)
                given = arguments(entry, case, dtype)
                before = {name: value.clone() for name, value in given.items()
                          if torch.is_tensor(value)}
                expected = reference(template, given)
                away = error(entry(**given), expected, template.get("tolerance", 1.0))
                assert away <= 1, f"{case} in {dtype}, {knobs}: {away:.2g} times what is allowed"
                for name, value in before.items():
                    assert torch.equal(value, given[name]), f"{case} changed {name}"


ARCHS = ({"backend": "cuda", "number": 90, "warp": 32, "multiprocessors": 132,
          "shared_per_block": 232448},
         {"backend": "hip", "number": "gfx942", "warp": 64, "multiprocessors": 304,
          "shared_per_block": 65536})


def compile_for(template: dict, module, most: int) -> None:
    """Compile what the launches of the first bench cases need, on tensors without values."""
    from triton.runtime import jit
    from triton.runtime.driver import driver

    from harness.child.compile.aot import gpu_driver

    plain = jit.JITFunction.run
    entry = getattr(module, template["entry"])
    for arch in ARCHS:
        driver.set_active(gpu_driver(arch))
        shared = []
        jit.JITFunction.run = lambda kernel, *args, to=shared, **kwargs: to.append(
            plain(kernel, *args, **{**kwargs, "warmup": True}).metadata.shared)
        for case in template["bench"][:most]:
            entry(**arguments(entry, case, torch.bfloat16, empty=True))
        assert shared and max(shared) <= arch["shared_per_block"], shared
    jit.JITFunction.run = plain


def expressions(folder: Path) -> None:
    """Compare each expression with its PyTorch target, written into the template `pointwise`."""
    text = (FOLDER / "pointwise.py").read_text()
    mark = "    # kopt: epilogue value\n"
    assert mark in text
    for number, rule in enumerate(TABLE["expressions"]):
        given = {**rule.get("defaults", {}), **rule.get("test", {})}
        if "when" in rule:
            assert eval(rule["when"], dict(given)), rule["targets"][0]
        lines = rule["code"].format(**given).splitlines()
        path = folder / f"expression{number}.py"
        path.write_text(text.replace(mark, "".join(f"    {line}\n" for line in lines)))
        x = torch.cat([torch.linspace(-9, 9, 181), torch.tensor([1e-3, -1e-3, 30.0, -30.0, 1e-7])])
        if "other" in given:
            given["other"] = torch.tensor(given["other"], dtype=torch.float64)
        expected = eval(rule["targets"][0])(x.double(), **given)
        kept = ~expected.isnan()  # roots and logarithms of negative values
        away = error(load(path).pointwise(x)[kept], expected[kept])
        assert away <= 2, f"{rule['targets'][0]} {given}: {away:.2g} times what is allowed"
        print(rule["targets"][0], flush=True)


if __name__ == "__main__":
    mode, most, *names = sys.argv[1:]
    if mode == "expressions":
        with tempfile.TemporaryDirectory() as folder:
            expressions(Path(folder))
        sys.exit()
    for template in TABLE["templates"]:
        if not names or template["name"] in names:
            (run if mode == "run" else compile_for)(template, load(FOLDER / template["file"]),
                                                    int(most))
            print(template["name"], flush=True)
