"""Source trees to audit: a baseline, and a candidate that changes some files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.audit import dependencies
from harness.audit.findings.tree_diff import Changes
from harness.audit.static import AuditedChange
from harness.tasks.target import Arg, ConfigClass, Target
from harness.tasks.task_file import check
from harness.verdict import Finding

Files = Mapping[str, str | bytes]
TRITON = """import torch
import triton
import triton.language as tl

@triton.jit
def norm_kernel(x, weight, out, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < cols)
    scale = tl.rsqrt(tl.sum(value * value, 0) / cols)
    tl.store(out + at, value * scale * tl.load(weight + at, mask=at < cols), mask=at < cols)

def norm(x, weight, out):
    rows, cols = x.shape
    norm_kernel[(rows,)](x, weight, out, cols, BLOCK=1024)
"""
C = """#include <math.h>
#include <stdint.h>

void norm(const float *x, const float *weight, float *out, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows * cols; i++) out[i] = x[i] * weight[i % cols];
}
"""
REFERENCE = "import numpy as np\n\n\ndef norm(x, weight):\n    return x / np.sqrt((x * x).sum(1))\n"


def target(language: str = "triton", **fields: Any) -> Target:
    """Return the target of an op with one activation `x` and one weight."""
    given: dict[str, Any] = {
        "op": "norm", "language": language, "entry": "norm", "reference": "reference.py:norm",
        "source": "kernel.c" if language == "c" else "kernel.py",
        "args": (Arg(name="x", dtype="float32", shape=("m", "n")),
                 Arg(name="weight", dtype="float32", shape=("n",)),
                 Arg(name="out", dtype="float32", shape=("m", "n"), role="output"),
                 *((Arg(name="rows", dtype="int64", value="m"),
                    Arg(name="cols", dtype="int64", value="n")) if language == "c" else ())),
        "classes": (ConfigClass(name="one", shape={"m": 4, "n": 64}),)}
    made = Target(**(given | fields))
    check(made)
    return made


def trees(folder: Path, candidate: Files, baseline: Files | None = None) -> tuple[Path, Path]:
    """Write both trees; the candidate's has the baseline's files, some replaced or added."""
    base: dict[str, str | bytes] = {"kernel.py": TRITON, "kernel.c": C, "reference.py": REFERENCE}
    base.update(baseline or {})
    for name, files in (("candidate", {**base, **candidate}), ("baseline", base)):
        for path, content in files.items():
            place = folder / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / "candidate", folder / "baseline"


def triton(body: str = "", head: str = "", entry: str | None = None) -> str:
    """Return the baseline's source with `body` in the entry, `head` before it, or another entry."""
    source = TRITON if entry is None else TRITON[: TRITON.index("def norm(")] + entry
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    return source.replace("def norm(", f"{head}\ndef norm(").replace(
        "    norm_kernel[", f"{indented}    norm_kernel[")


def c(body: str = "", head: str = "") -> str:
    """Return the baseline's C source with `body` in the entry and `head` before it."""
    return C.replace("void norm(", f"{head}\nvoid norm(").replace(
        "    for (", f"    {body}\n    for (")


def audited_change(target: Target, candidate: Path, baseline: Path) -> AuditedChange:
    return AuditedChange(target, Changes(candidate, baseline))


def static(target: Target, candidate: Path, baseline: Path) -> list[Finding]:
    """Return the findings on what a candidate's sources add to the baseline's."""
    return audited_change(target, candidate, baseline).findings()


def new_dependencies(target: Target, candidate: Path, baseline: Path) -> list[Finding]:
    return dependencies.new_dependencies(target, Changes(candidate, baseline))
