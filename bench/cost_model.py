"""Compare predictions of `harness.roofline.cost_model` with latencies measured on an H200.

    python bench/cost_model.py [--out FILE]

The examples are read from the measured commit, which must be in the git history.

Latencies: bench/results/h200-triton-2026-11-20.json (warm caches) and fidelity-gpu-h200-2026-11-22
(cold caches), with the configurations of those runs. The installed Triton compiles the kernels
here, without a GPU; the latencies are of Triton 3.6. One class is left out: it is dominated by a
loop whose length no compiler knows.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import fidelity_kernels
import machine

from harness.compile import triton_aot
from harness.compile.place import Place
from harness.compile.triton_aot import KernelResources
from harness.devices import datasheets
from harness.formats.json_codec import to_builtins
from harness.roofline import cost_model, predictor
from harness.search.space import knobs
from harness.tasks import task_file
from harness.tasks.target import Target
from harness.verdict import Value

GPU = machine.RESULTS / "h200-triton-2026-11-20.json"
FIDELITY = machine.RESULTS / "fidelity-gpu-h200-2026-11-22.jsonl"
PRODUCTS = ("matmul-2048", "matmul-4096")
MEASURED = "fa67dea"
"""The last commit with the examples as they were measured."""
Config = dict[str, Value]
GOOD: dict[str, Config] = {
    "softmax_triton": {"BLOCK": 512, "NUM_WARPS": 2},
    "matmul_triton": {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8,
                      "matmul_kernel.config": "triton.Config({}, num_warps=8, num_stages=3)"}}
FIRST: Config = {"BLOCK": 4096, "NUM_WARPS": 8}
"""The better softmax configuration of the first run; in class "tall" most of its lanes are idle."""


@dataclass(frozen=True)
class Point:
    """A measured latency of one class, or of all classes together (`config_class` "all")."""

    example: str
    config: Config
    config_class: str
    us: float
    cold: bool = False


def points() -> Iterator[Point]:
    runs = json.loads(GPU.read_text())["runs"]
    for number, run in enumerate(runs):
        for example, good in GOOD.items():
            rows = run.get(f"gain {example}", {}).get("rows", ())
            base: Config = {"NUM_WARPS": (4, 8)[number]} if example == "softmax_triton" else {}
            for row in rows:
                yield Point(example, base, row["class"], row["incumbent_us"])
                better = good if number or example != "softmax_triton" else FIRST
                yield Point(example, better, row["class"], row["us"])
            for trial in run.get(f"loop {example}", {}).get("trials", ()):
                yield Point(example, trial["config"], "all", trial["us"])
    seen: dict[str, list[float]] = {}
    for line in FIDELITY.read_text().splitlines():
        for row in json.loads(line).get("rows", ()):
            if row.get("incumbent_us") and row["class"] != "iterated-1024x2048":
                seen.setdefault(row["class"], []).append(row["incumbent_us"])
    for name, values in seen.items():
        yield Point("fidelity", {}, name, median(values), cold=True)


def measured_text(example: str, name: str) -> str:
    return subprocess.run(["git", "show", f"{MEASURED}:examples/{example}/{name}"], check=True,
                          cwd=Path(__file__).parent, capture_output=True, text=True).stdout


def source_of(example: str, config: Config) -> str:
    """Return an example's source with knobs set; an autotune config replaces the whole list."""
    source = measured_text(example, "kernel.py")
    chosen = config.get("matmul_kernel.config")
    if chosen is not None:
        source = re.sub(r"configs=\[.*?\n    \]", f"configs=[{chosen}]", source, flags=re.S)
    plain = {name: value for name, value in config.items() if name != "matmul_kernel.config"}
    return knobs.apply(source, plain, language="triton")


def compiled(example: str, config: Config) -> tuple[Target, tuple[KernelResources, ...]]:
    with tempfile.TemporaryDirectory() as made:
        tree = Path(made) / "tree"
        tree.mkdir()
        if example == "fidelity":
            (tree / "kernel.py").write_text(fidelity_kernels.source({}))
            task = fidelity_kernels.task()
        else:
            (tree / "kernel.py").write_text(source_of(example, config))
            (tree / "task.yaml").write_text(measured_text(example, "task.yaml"))
            task = task_file.load(tree / "task.yaml")
        return task, triton_aot.inspect(
            task, tree, "sm_90", Place(scratch=f"{made}/scratch")).resources


def predicted(point: Point, task: Target, resources: tuple[KernelResources, ...]) -> Any:
    card = datasheets.find_by_short_name("h200")
    assert card is not None
    if point.config_class == "all":
        return predictor.predict_source(task, resources, card, cold=point.cold)
    one = task.config_class(point.config_class)
    if point.example == "fidelity":
        product = point.config_class in PRODUCTS
        task = replace(task, flops="2*rows*inner*cols" if product else "5*rows*inner",
                       args=tuple(arg for arg in task.args if product or arg.name != "y"))
    return cost_model.predict(task, one, resources, card, cold=point.cold)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out = args.out or machine.RESULTS / f"cost-model-{time.strftime('%Y-%m-%d')}.jsonl"
    known: dict[str, tuple[Target, tuple[KernelResources, ...]]] = {}
    lines: list[dict[str, Any]] = [{"kind": "machine", **machine.describe()}]
    for point in points():
        key = json.dumps([point.example, point.config])
        if key not in known:
            known[key] = compiled(point.example, point.config)
        told = predicted(point, *known[key])
        lines.append({"kind": "point", **to_builtins(point), "predicted_us": told.latency_us,
                      "factor": told.latency_us / point.us})
        print(f"{point.example:14} {point.config_class:18} {point.us:8.1f} us measured, "
              f"{told.latency_us:8.1f} predicted, x{told.latency_us / point.us:4.2f}  "
              f"{list(point.config.values())}")
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    factors = [line["factor"] for line in lines[1:]]
    off = [max(value, 1 / value) for value in factors]
    print(f"{len(off)} points: typically off by x{median(off):.2f}, at most x{max(off):.2f}; "
          f"geometric mean of predicted over measured "
          f"{math.exp(sum(map(math.log, factors)) / len(factors)):.2f}; order of pairs of one "
          f"kernel and class right in {ordered(lines[1:]):.0%} -> {out}")


def ordered(rows: list[dict[str, Any]]) -> float:
    """Return the share of pairs, measured more than 10 % apart, that are predicted in order."""
    right = total = 0
    for number, one in enumerate(rows):
        for other in rows[:number]:
            same = all(one[name] == other[name] for name in ("example", "config_class"))
            if same and abs(math.log(one["us"] / other["us"])) > 0.1:
                total += 1
                right += (one["us"] < other["us"]) == (one["predicted_us"] < other["predicted_us"])
    return right / total


if __name__ == "__main__":
    main()
