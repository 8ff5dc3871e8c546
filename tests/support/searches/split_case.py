"""A small C kernel whose best tile depends on the context, and a benchmark that counts steps.

The benchmark reports the kernel's own count of steps, so that the machine's noise has no effect.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
from pathlib import Path

import msgspec
import pytest

from engine.split import specialise
from engine.split.class_preferences import ClassGroup
from engine.split.languages import conditions
from engine.workers.protocol import WorkerBench
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric
from harness.devices import inventory
from harness.search.space import knobs
from harness.verdict import Value
from tests.support.agents import worker_bench

RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
os.environ.setdefault("KOPT_LOCK_DIR", f"/tmp/kopt-test-locks-{RUN}")  # separate from other runs

KERNEL = """\
/* The sum of what each of some heads holds, tile by tile. */
#include <stdint.h>

#define TILE 32 /* kopt: knob TILE in [4, 32, 256] elements that are worked on at once */
#define START 16 // kopt: knob START in [16, 64] what a tile costs besides
/* kopt: require TILE <= 8 * START or TILE == 256 */
#define MASK (TILE - 1)

int64_t steps;
int taken;

static double part(const double *x, int64_t count) {
    double sum = 0;
    for (int i = 0; i < TILE; i++, steps++) sum += i < count ? x[i] : 0;
    steps += START;
    return sum;
}

static void count_head(int64_t head) { steps += head < 0; }

/* The one entry point. */
void total(const double *x, double out[], int64_t context, const int64_t heads) {
    taken = TILE;
    for (int64_t h = 0; h < heads; h++) {
        out[h] = 0;
        count_head(h);
        for (int64_t i = 0; i < context; i += TILE)
            out[h] += part(x + h * context + i, context - i);
        steps += (context & MASK) < 0;
    }
}
"""
BENCH = """\
import csv, ctypes, random, sys

library = ctypes.CDLL("./total.so")
steps = ctypes.c_int64.in_dll(library, "steps")
rows = []
for context in (8, 1024) if "--quick" in sys.argv else (8, 16, 1024, 4096):
    for heads in (1, 3):
        x = [random.random() for _ in range(context * heads)]
        out = (ctypes.c_double * heads)()
        steps.value = 0
        library.total((ctypes.c_double * len(x))(*x), out, ctypes.c_int64(context),
                      ctypes.c_int64(heads))
        right = all(abs(out[h] - sum(x[h * context:(h + 1) * context])) < 1e-6
                    for h in range(heads))
        rows.append({"context": context, "heads": heads, "impl": "tiled", "err": 1 - right,
                     "us": f"{steps.value * random.uniform(0.999, 1.001):.4f}"})
with open("bench.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)
"""
FILES = {"total.c": KERNEL, "bench.py": BENCH}
TARGET = CommandTarget(
    op="total",
    command="python bench.py",
    csv="bench.csv",
    source="total.c",
    language="c",
    check=CheckColumn(column="err", rule="== 0"),
    metrics=(Metric(name="us"),),
    configs=("context",),
    build_command="cc -O1 -shared -fPIC -o total.so total.c",
    timeout_s=60.0,
    frozen=("bench.py",),
)
SAME = {"context": "context", "heads": "heads"}


def group(condition: str, point: dict[str, int], *classes: str, **config: Value) -> ClassGroup:
    return ClassGroup(config=config, classes=classes or (condition,), points=(point,), gain=0.2,
                      condition=conditions.parse(condition))


def start(source: str) -> dict[str, Value]:
    return knobs.current(knobs.find(source, language="c"))


def start_of(source: str, language: str) -> dict[str, Value]:
    return knobs.current(knobs.find(source, language=language))


def divided(source: str, *groups: ClassGroup, names: dict[str, str] = SAME) -> str:
    now = start(source)
    complete = [msgspec.structs.replace(group, config={**now, **group.config}) for group in groups]
    return specialise.split(source, complete, names, start=now)


def built(folder: Path, source: str) -> ctypes.CDLL:
    folder.mkdir(exist_ok=True)
    path = folder / f"k{len(list(folder.iterdir()))}.c"
    path.write_text(source)
    library = path.with_suffix(".so")
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, path],
                   check=True)
    return ctypes.CDLL(str(library))


def tile_taken(library: ctypes.CDLL, context: int, heads: int) -> int:
    """Call the kernel, check its result, and return the tile that the call used."""
    x = [random.random() for _ in range(context * heads)]
    out = (ctypes.c_double * heads)()
    library.total((ctypes.c_double * len(x))(*x), out, ctypes.c_int64(context),
                  ctypes.c_int64(heads))
    assert list(out) == pytest.approx(
        [sum(x[h * context:(h + 1) * context]) for h in range(heads)])
    return ctypes.c_int.in_dll(library, "taken").value


def project(folder: Path, **files: str) -> Path:
    """Write the small project; `_` in a name stands for `.`."""
    folder.mkdir(parents=True)
    for name, text in {**FILES,
                       **{name.replace("_", "."): text for name, text in files.items()}}.items():
        (folder / name).write_text(text)
    return folder


def bench(folder: Path, target: CommandTarget = TARGET, **files: str) -> WorkerBench:
    tree = project(folder / "tree", **files)
    return worker_bench.bench(target, inventory.find("cpu"), tree, folder / "scratch",
                              base_commit="c0")
