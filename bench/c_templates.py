"""Measure the C templates against plain loops with -O3 -march=native, and against numpy.

Called by `bench/templates.py --cpu`. Each template is built with its knobs' default values and
with the best ones of a search. Its result is compared with one in float64, and its calls are timed
in turn with the plain loops of naive_templates.c, all on one thread.
"""

from __future__ import annotations

import ctypes
import json
import math
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from engine.workers import template as c_template
from harness.compile.c_compiler import alignment_flags
from harness.search.space.tunable_source import TunableSource

NAIVE = Path(__file__).parent / "naive_templates.c"
FLAGS = ["-O3", "-march=native", "-shared", "-fPIC", "-Wno-psabi"]
SHAPES: dict[str, list[dict[str, int]]] = {
    "matmul": [{"m": 256, "n": 256, "k": 256}, {"m": 61, "n": 251, "k": 509}],
    "linear": [{"m": 256, "n": 256, "k": 256}, {"m": 61, "n": 251, "k": 509}],
    "transpose": [{"rows": 2048, "cols": 2048}, {"rows": 1021, "cols": 509}],
    **{op: [{"n": 1 << 16}, {"n": 1000003}] for op in ("silu", "gelu")},
    **{op: [{"rows": 256, "cols": 1024}, {"rows": 61, "cols": 4093}]
       for op in ("softmax", "layernorm", "rmsnorm", "rowsum")}}
EXPECTED: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: (e := np.exp(x - x.max(1, keepdims=True))) / e.sum(1, keepdims=True),
    "layernorm": lambda x, weight, bias: (x - x.mean(1, keepdims=True)) / np.sqrt(
        x.var(1, keepdims=True) + x.dtype.type(1e-5)) * weight + bias,
    "rmsnorm": lambda x, weight: x / np.sqrt((x * x).mean(1, keepdims=True)
                                             + x.dtype.type(1e-5)) * weight,
    "rowsum": lambda x: x.sum(1), "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "transpose": lambda x: np.ascontiguousarray(x.T), "matmul": lambda a, b: a @ b,
    "linear": lambda a, b, bias: a @ b + bias}
NOT_IN_NUMPY = ("gelu",)
SIZES = {"x": ("rows", "cols"), "a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n"),
         "weight": ("cols",), "out": ("rows", "cols")}


def build(text: str, folder: Path, entry: str) -> Any:
    """Compile a source and return its entry function."""
    path = folder / f"{abs(hash(text))}.c"
    path.write_text(text)
    library = path.with_suffix(".so")
    subprocess.run(["cc", *FLAGS, *alignment_flags("cc"), "-o", library, path, "-lm"], check=True)
    return getattr(ctypes.CDLL(str(library)), entry)


def arrays(template: c_template.Template, shape: dict[str, int]) -> dict[str, Any]:
    """Return the arguments of a call by name, in order: numpy arrays and ctypes scalars."""
    random = np.random.default_rng(0)
    given: dict[str, Any] = {}
    for name, dtype, role in template.parameters:
        if role == "scalar":
            given[name] = (ctypes.c_int64(shape[name]) if dtype == "int64"
                           else ctypes.c_float(1e-5))
            continue
        sizes = [shape[size] for size in SIZES.get(name, ()) if size in shape]
        if name == "bias":  # as long as the weight, or as a row of the result
            sizes = [shape["n"] if template.name == "linear" else shape["cols"]]
        if template.name in ("silu", "gelu"):
            sizes = []
        if template.name == "rowsum" and role == "output":
            sizes = sizes[:1]
        if template.name == "transpose" and role == "output":
            sizes = sizes[::-1]
        given[name] = random.standard_normal(sizes or [shape["n"]]).astype(np.float32)
    return given


def timed(calls: list[Callable[[], Any]], seconds: float = 0.4) -> list[float]:
    """Return the median time of each call in microseconds; the calls take turns."""
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for call, spent in zip(calls, times, strict=True):
            call()
            begin = time.perf_counter()
            call()
            spent.append(time.perf_counter() - begin)
    return [median(spent) * 1e6 for spent in times]


def measure(template: c_template.Template, shape: dict[str, int], folder: Path,
            search_s: float) -> dict[str, Any]:
    text = re.sub(r"@(\w+)@", r"\1", template.text.partition("\n")[2])
    source = TunableSource.parse(text, language="c", path=template.name)
    given = arrays(template, shape)
    inputs = [given[name] for name, _, role in template.parameters if role == "input"]
    [out] = [given[name] for name, _, role in template.parameters if role == "output"]
    values = [ctypes.c_void_p(value.ctypes.data) if isinstance(value, np.ndarray) else value
              for value in given.values()]
    expected = EXPECTED[template.name](*(value.astype(np.float64) for value in inputs))

    def built(config: dict[str, Any]) -> tuple[Callable[[], Any], float]:
        entry = build(source.apply(config), folder, "entry")
        out.fill(np.nan)
        entry(*values)
        error = float(np.max(np.abs(out - expected) / (np.abs(expected) + 1)))
        return lambda: entry(*values), error

    best = {knob.name: knob.value for knob in source.knobs}
    call, best_error = built(best)
    plain = build(NAIVE.read_text(), folder, template.name)
    end = time.monotonic() + search_s
    default_us, naive_us = timed([call, lambda: plain(*values)])
    best_us = default_us
    for knob in source.knobs * 2:
        for value in knob.choices:
            config = {**best, knob.name: value}
            if time.monotonic() > end or value == best[knob.name] or source.check(config).refusal:
                continue
            other, other_error = built(config)
            before, after = timed([call, other], 0.1)
            if after < 0.98 * before and other_error < 2 * max(best_error, 1e-6):
                best, call, best_error = config, other, other_error
    library = EXPECTED[template.name]
    best_us, naive_us, numpy_us = timed([call, lambda: plain(*values), lambda: library(*inputs)])
    known = template.name not in NOT_IN_NUMPY
    return {"error": best_error, "us": round(best_us, 2), "default_us": round(default_us, 2),
            "naive_us": round(naive_us, 2), "numpy_us": round(numpy_us, 2) if known else None,
            "vs_naive": round(naive_us / best_us, 2),
            "vs_numpy": round(numpy_us / best_us, 2) if known else None,
            "config": {k.name: best[k.name] for k in source.knobs if best[k.name] != k.value}}


def run(out: Path, only: list[str], seconds: float, search_s: float) -> None:
    """Measure each template at its shapes; append a line for each shape to c-templates.jsonl."""
    import machine

    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    device = machine.describe()["devices"][0]["name"]
    with tempfile.TemporaryDirectory() as name:
        for template in c_template.templates("c"):
            for shape in SHAPES[template.name]:
                if (only and template.name not in only) or time.monotonic() - began > seconds:
                    continue
                row = {"template": template.name, "shape": shape, "device": device} | measure(
                    template, shape, Path(name), search_s)
                with (out / "c-templates.jsonl").open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)
