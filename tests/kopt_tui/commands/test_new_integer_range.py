"""Tests which values `kopt new` has drawn for integer inputs whose range nothing declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.tasks import task_file
from harness.tasks.target import Arg
from tests.support.programs.command_line import answer, kopt

HISTOGRAM = """#include <string.h>
void histogram(const int *value, int n, int *count, int bins) {
    memset(count, 0, bins * sizeof(int));
    for (int i = 0; i < n; i++) if (LOW value[i] < bins) count[value[i]]++;
}
"""
OF_HISTOGRAM = """def histogram(value, bins):
    counts = [0] * bins
    for v in value:
        if v < bins:
            counts[int(v)] += 1
    return counts
"""
ROWS = """void sums(const int *start, const int *at, const float *x, float *out,
          int rows, int entries, int cols) {
    for (int i = 0; i < rows; i++) {
        out[i] = 0;
        for (int j = start[i]; j < start[i + 1]; j++) out[i] += x[at[j]];
    }
}
"""
OF_ROWS = """import numpy as np
def sums(start, at, x):
    start, at = start.astype(int), at.astype(int)
    return np.array([sum(x[at[j]] for j in range(start[i], start[i + 1]))
                     for i in range(len(start) - 1)], float)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "histogram.c").write_text(HISTOGRAM.replace("LOW", "value[i] >= 0 &&"))
    (tmp_path / "reference.py").write_text(OF_HISTOGRAM)
    return tmp_path


def new_histogram(folder: Path, *flags: str) -> tuple[str, str, Arg]:
    """Run `kopt new`; return stdout, stderr and the argument that it wrote for `value`."""
    done = kopt("new", "histogram.c", "--shape", "value=n", "--shape", "count=bins", "--class",
                "a: n=500 bins=8", "--class", "b: n=3000 bins=40", "--yes", *flags, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, task_file.load(folder / "task.yaml").args[0]


def test_values_are_drawn_below_a_size_that_is_no_dimension_of_their_own(folder: Path) -> None:
    out, err, value = new_histogram(folder)
    assert (value.low, value.high) == (0, "bins")
    assert "value: drawn from 0 to below bins (a size that the reference and the kernel accept)" \
        in out and "0 and 1" not in out + err
    (folder / "histogram.c").write_text(HISTOGRAM.replace("LOW", "value[i] < 2 &&"))
    verdict = answer(kopt("evaluate", "manifest.yaml", "--quick", "--json", cwd=folder),
                     code=1)
    assert verdict["correct"] is False, "a kernel that counts 0 and 1 only"


def test_unchecked_task_keeps_0_and_1(folder: Path) -> None:
    out, err, value = new_histogram(folder, "--no-check")
    [line] = [line for line in err.splitlines() if line.startswith("  value ")]
    assert value.high is None and "drawn from 0 and 1: write low and high in the task" in line
    assert "first verdict" not in out


def test_range_that_the_reference_refuses_is_not_taken_and_the_verdict_says_so(
        folder: Path) -> None:
    refusing = OF_HISTOGRAM.replace("    counts =", "    assert max(value) < 2\n    counts =", 1)
    (folder / "reference.py").write_text(refusing)
    out, _, value = new_histogram(folder)
    assert value.high is None and "value: drawn from 0 and 1" in out
    assert "first verdict: correct on 2 config classes (integer inputs of 0 and 1 only: value)" \
        in out


def test_row_pointers_are_drawn_as_offsets_and_indices_below_the_size_that_they_index(
        tmp_path: Path) -> None:
    (tmp_path / "sums.c").write_text(ROWS)
    (tmp_path / "reference.py").write_text(OF_ROWS)
    done = kopt("new", "sums.c", "--shape", "start=rows+1", "--shape", "at=entries", "--shape",
                "x=cols", "--shape", "out=rows", "--class", "a: rows=40 entries=300 cols=70",
                "--class", "b: rows=90 entries=900 cols=200", "--yes", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    start, at, *_ = task_file.load(tmp_path / "task.yaml").args
    assert (start.structure, start.low, start.high) == ("offsets", 0, "entries + 1"), done.stdout
    assert (at.structure, at.low, at.high) == (None, 0, "cols"), done.stdout


MASKED = """void masked(const float *x, const unsigned char *x_mask, float *out, int n) {
    for (int i = 0; i < n; i++) out[i] = x_mask[i] ? x[i] : 0.0f;
}
"""


def test_mask_stays_0_or_1_although_the_kernel_accepts_any_value(tmp_path: Path) -> None:
    (tmp_path / "masked.c").write_text(MASKED)
    (tmp_path / "reference.py").write_text("def masked(x, x_mask):\n    return x * (x_mask != 0)\n")
    shapes = [word for name in ("x", "x_mask", "out") for word in ("--shape", f"{name}=n")]
    done = kopt("new", "masked.c", *shapes, "--class", "a: n=100", "--yes", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    mask = task_file.load(tmp_path / "task.yaml").args[1]
    assert (mask.low, mask.high) == (0, 2)
    assert "x_mask: drawn from 0 and 1, by its name; write other bounds as low and high" \
        in done.stdout
