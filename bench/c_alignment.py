"""Measure how much the position of a loop in a C library changes its time, aligned and unaligned.

Builds several variants of each kernel: with other functions in front of it, and with another
statement before its loop, as between a candidate and its incumbent. All variants of a kernel do the
same work. Prints each variant's fastest block (ns per call) and the ratio of the slowest variant to
the fastest, or with --verdicts real verdicts on the variants of two kernels.

    python bench/c_alignment.py [--verdicts] > bench/results/c-alignment-cpu-DATE.txt
"""

from __future__ import annotations

import argparse
import ctypes
import platform
import tempfile
import time
from pathlib import Path

from harness.compile import c_compiler
from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.isolation import device_lock
from harness.settings import Settings, Trees
from harness.tasks.target import Arg, ConfigClass, Target
from harness.timing.plan import Plan

N = 4096
ROUNDS, CALLS = 40, 100
BODIES = {
    "scale": "for (int64_t i = 0; i < 8 * m; i++) out[i >> 3] = 2 * x[i] + 1;",
    "sum of 7": "for (int64_t i = 0; i < m; i++) { float s = 0; "
                "for (int k = 0; k < 7 + (i > m); k++) s += x[8 * i + k]; out[i] = s; }",
    "max of 5": "for (int64_t i = 0; i < m; i++) { float s = x[8 * i]; "
                "for (int k = 1; k < 5 + (i > m); k++) s = x[8 * i + k] > s ? x[8 * i + k] : s; "
                "out[i] = s; }",
    "products": "for (int64_t i = 0; i < m; i++) { float s = 1; "
                "for (int k = 0; k < 3 + (i > m); k++) "
                "for (int j = 0; j < 3 + (i > m); j++) s += x[8 * i + k] * x[8 * i + j]; "
                "out[i] = s; }",
}
REFERENCES = {
    "scale": "def run(x):\n    return 2 * x[7::8] + 1\n",
    "sum of 7": "def run(x):\n    return x.reshape(-1, 8)[:, :7].sum(1)\n",
    "max of 5": "def run(x):\n    return x.reshape(-1, 8)[:, :5].max(1)\n",
    "products": "def run(x):\n    return 1 + x.reshape(-1, 8)[:, :3].sum(1) ** 2\n",
}
PADS = tuple(range(12))
PREAMBLES = ("if (m < 0) return;", "if (m == 12345) out[0] = 1;",
             "if (m < 0) { out[0] = x[1] + 3; return; } if (m == 77) out[2] = 5;")


def source(body: str, pads: int, preamble: str) -> str:
    """Return a C source with `pads` functions before the kernel and `preamble` before its loop."""
    front = "".join(f"int pad{i}(int x) {{ return x * {i + 3} + (x >> {i + 1}); }}\n"
                    for i in range(pads))
    return f"#include <stdint.h>\n{front}void run(const float *x, float *out, int64_t m) {{\n" \
        f"    {preamble}\n    {body}\n}}\n"


def variants(body: str) -> list[tuple[str, str]]:
    return [(f"{pads} functions in front", source(body, pads, "")) for pads in PADS] + [
        (f"statement {index} before", source(body, 0, text))
        for index, text in enumerate(PREAMBLES)]


def target(flags: tuple[str, ...]) -> Target:
    return Target(op="run", language="c", source="run.c", entry="run", reference="ref.py:run",
                  build=flags, classes=(ConfigClass(name="only", shape={"n": N, "m": N // 8}),),
                  args=(Arg(name="x", dtype="float32", shape=("n",)),
                        Arg(name="out", dtype="float32", shape=("m",), role="output"),
                        Arg(name="m", dtype="int64", value="m")))


def measure(name: str, flags: tuple[str, ...], folder: Path) -> None:
    functions = []
    for index, (label, text) in enumerate(variants(BODIES[name])):
        tree = folder / f"{name}-{index}"
        tree.mkdir(parents=True)
        (tree / "run.c").write_text(text)
        c_compiler.build(target(flags), tree, tree / "out" / "kernel.so")
        library = ctypes.CDLL(str(tree / "out" / "kernel.so"))
        functions.append((label, library.run))
    x = (ctypes.c_float * N)(*[((i * 7919) % 1000) / 1000 - 0.5 for i in range(N)])
    out = (ctypes.c_float * N)()
    m = ctypes.c_int64(N // 8)
    best = [float("inf")] * len(functions)
    for _ in range(ROUNDS):
        for index, (_, function) in enumerate(functions):
            function(x, out, m)
            began = time.perf_counter_ns()
            for _ in range(CALLS):
                function(x, out, m)
            best[index] = min(best[index], (time.perf_counter_ns() - began) / CALLS)
    for (label, _), ns in zip(functions, best, strict=True):
        print(f"    {label:24} {ns:9.1f} ns a call", flush=True)
    print(f"  {name} {' '.join(flags)}: slowest / fastest = {max(best) / min(best):.3f}\n",
          flush=True)


def judge(name: str, flags: tuple[str, ...], folder: Path) -> None:
    """Print verdicts on the second, fourth, … variant; the first variant is the incumbent."""
    labels_and_sources = variants(BODIES[name])
    base = folder / f"{name}-incumbent"
    base.mkdir(parents=True)
    (base / "run.c").write_text(labels_and_sources[0][1])
    (base / "ref.py").write_text(REFERENCES[name])
    for index, (label, text) in enumerate(labels_and_sources[1::2]):
        tree = folder / f"{name}-candidate-{index}"
        tree.mkdir()
        (tree / "run.c").write_text(text)
        (tree / "ref.py").write_text(REFERENCES[name])
        verdict = evaluate(target(flags), Trees(candidate=str(tree), incumbent=str(base),
                                                reference=str(base)), inventory.find("cpu"),
                           Settings(scratch=str(folder / f"scratch-{name}-{index}"),
                                    plan=Plan(alpha=0.01), static_audit=False, always_time=True))
        outcome = verdict.rows[0].outcome if verdict.rows else verdict.rejected_reason
        print(f"    {name} {' '.join(flags)} {label:24} {outcome} "
              f"{verdict.speedup or float('nan'):.3f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--verdicts", action="store_true")
    args = parser.parse_args()
    path = c_compiler.compiler()
    print(f"{platform.processor() or platform.machine()}, {path}")
    for label, given in (("before: as the compiler places code", ()),
                         ("after: aligned", c_compiler.alignment_flags(path)),
                         *([] if args.verdicts else [("with labels, not used", (
                             *c_compiler.alignment_flags(path), "-falign-labels=64"))])):
        print(f"{label} {' '.join(given)}")
        c_compiler.alignment_flags = lambda _, given=given: given  # type: ignore[assignment,misc]
        with tempfile.TemporaryDirectory() as folder:
            if not args.verdicts:
                with device_lock.acquire("cpu"):
                    for flags in (("-O2",), ("-O3",)):
                        for name in BODIES:
                            measure(name, flags, Path(folder) / flags[0])
                continue
            for name in ("scale", "sum of 7"):
                judge(name, ("-O2",), Path(folder))


if __name__ == "__main__":
    main()
