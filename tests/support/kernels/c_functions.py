"""C functions as people write them, compiled and called, to compare two forms of their source."""

from __future__ import annotations

import ctypes
import math
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import EXAMPLES


class CFunction(NamedTuple):
    """A source, the function to call, sizes of its arrays (the last is the output), other values.
    """

    source: str
    entry: str
    arrays: tuple[int, ...]
    values: tuple[object, ...]


def compiled(function: CFunction, source: str, folder: Path, language: str = "c") -> list[float]:
    """Compile one form of the function's source and return its output for random arrays."""
    path, library = folder / f"kernel.{language}", folder / f"kernel-{abs(hash(source))}.so"
    path.write_text(source)
    done = subprocess.run(
        ["cc", "-O1", "-Werror=implicit-function-declaration", "-shared",
         "-fPIC", "-o", str(library), str(path), "-lm",
         *(["-fopenmp"] if "#pragma omp" in source else [])],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{source}"
    draw = random.Random(7)
    arrays = [(ctypes.c_float * size)(*(draw.gauss(0.3, 1) for _ in range(size)))
              for size in function.arrays]
    arrays[-1][:] = [math.nan] * function.arrays[-1]
    getattr(ctypes.CDLL(str(library)), function.entry)(*arrays, *function.values)
    return list(arrays[-1])


def is_close(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=2e-4, abs_tol=2e-5)
               for a, b in zip(one, other, strict=True))


def _long(*values: int) -> tuple[ctypes.c_int64, ...]:
    return tuple(map(ctypes.c_int64, values))


SOFTMAX = """\
#include <math.h>

void softmax(const float *x, float *out, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        const float *in = x + r * cols;
        float *o = out + r * cols;
        float peak = -INFINITY;
        for (long i = 0; i < cols; i++)
            if (in[i] > peak) peak = in[i];
        float total = 0;
        for (long i = 0; i < cols; i++) {
            o[i] = expf(in[i] - peak);
            total += o[i];
        }
        for (long i = 0; i < cols; i++) o[i] /= total;
    }
}
"""
MATMUL = """\
void matmul(const float *a, const float *b, float *c, long m, long n, long k) {
    for (long i = 0; i < m; i++)
        for (long j = 0; j < n; ++j) {
            float sum = 0.0f;
            for (long p = 0; p < k; p += 1)
                sum += a[i * k + p] * b[p * n + j];
            c[i * n + j] = sum;
        }
}
"""
RANGE = """\
#include <math.h>

void range(const float *x, float *out, long n) {
    float low = x[0], high = x[0], product = 1.0f;
    double sum = 0;
    int i;
    for (i = 0; i < n; i++) {
        low = fminf(low, x[i]);
        high = high < x[i] ? x[i] : high;
        sum = sum + x[i];
        product *= 1.0f + x[i] * 1e-3f;
    }
    for (i = 0; i < n; i++) {
        float shifted = x[i] - low;
        out[i] = shifted / (high - low + 1e-6f) + (float)(sum / n) + product;
    }
}
"""
COLUMN_SUMS = """\
void column_sums(const float *x, float *out, long rows, long cols) {
    for (long c = 0; c < cols; c++) out[c] = 0;
    for (long c = 0; c < cols; c++)  // strides
        for (long r = 0; r < rows; r++) {
            const float value = x[r * cols + c];
            out[c] += value > 0 ? value : 0.5f * value;
        }
}
"""
TRANSPOSE = """\
#include <stddef.h>

void transpose(const float *x, float *out, size_t rows, size_t cols) {
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; ++c)
            out[c * rows + r] = 2.0f * x[r * cols + c];
}
"""
ROWS, COLS = 5, 37
PARALLEL_STENCIL = """\
#include <math.h>

void stencil(const float *x, float *restrict out, long rows, long cols)
{
    for (long i = 0; i < rows * cols; i++) out[i] = x[i];
    #pragma omp parallel for schedule(static, 1)
    for (long j = 1; j < cols - 1; j++)
        for (long i = 1; i < rows - 1; i++)
            out[i * cols + j] = x[(i - 1) * cols + j] + x[(i + 1) * cols + j];
    #pragma omp parallel for
    for (long j = 0; j < cols; j++)
        out[j] = out[j] / sqrtf((float)rows);
}
"""
ROW_MEANS = """\
void row_means(const float *x, float *out, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        float sum = 0.0f;
        for (int i = 0; i < cols; i++) sum += x[r * cols + i];
        out[r] = sum / cols;
    }
}
"""
ARRAY_PRODUCT = """\
void product(long n, long m, long p, const float A[n][m], const float B[m][p], float C[n][p]) {
    long i, j, k;
    for (i = 0; i < n; ++i)
        for (j = 0; j < p; ++j) {
            C[i][j] = 0;
            for (k = 0; k < m; ++k)
                C[i][j] += A[i][k] * B[k][j];
        }
}

void entry(const float *a, const float *b, float *c, long n, long m, long p) {
    product(n, m, p, (const float (*)[m])a, (const float (*)[p])b, (float (*)[p])c);
}
"""
ARRAY_SUMS = """\
void sums(long n, long m, const float A[n][m], float *out) {
    for (long j = 0; j < m; j++) out[j] = 0;
    for (long j = 0; j < m; j++)
        for (long i = 0; i < n; i++)
            out[j] += A[i][j];
}

void entry(const float *a, float *out, long n, long m) {
    sums(n, m, (const float (*)[m])a, out);
}
"""
FUNCTIONS = {
    "product of arrays": CFunction(ARRAY_PRODUCT, "entry", (7 * 11, 11 * 37, 7 * 37),
                                   _long(7, 11, 37)),
    "column sums of an array": CFunction(ARRAY_SUMS, "entry", (70 * 41, 41), _long(70, 41)),
    "softmax": CFunction(SOFTMAX, "softmax", (ROWS * COLS, ROWS * COLS), _long(ROWS, COLS)),
    "matmul": CFunction(MATMUL, "matmul", (7 * 11, 11 * 37, 7 * 37), _long(7, 37, 11)),
    "row means": CFunction(ROW_MEANS, "row_means", (5 * 37, 5), (5, 37)),
    "column sums": CFunction(COLUMN_SUMS, "column_sums", (70 * 41, 41), _long(70, 41)),
    "transpose": CFunction(TRANSPOSE, "transpose", (70 * 41, 70 * 41), _long(70, 41)),
    "parallel stencil": CFunction(PARALLEL_STENCIL, "stencil", (70 * 41, 70 * 41), _long(70, 41)),
    "range": CFunction(RANGE, "range", (61, 61), _long(61)),
    "rmsnorm example": CFunction(
        (EXAMPLES / "rmsnorm_c" / "rmsnorm.c").read_text(), "rmsnorm",
        (ROWS * COLS, COLS, ROWS * COLS), (*_long(ROWS, COLS), ctypes.c_float(1e-6))),
    "matmul example": CFunction(
        (EXAMPLES / "matmul_c" / "matmul.c").read_text(), "matmul",
        (7 * 11, 11 * 37, 7 * 37), _long(7, 37, 11)),
    "layernorm example, forward": CFunction(
        (EXAMPLES / "command_c" / "layernorm.c").read_text(), "forward",
        (ROWS * COLS, ROWS * COLS), _long(ROWS, COLS)),
    "layernorm example, backward": CFunction(
        (EXAMPLES / "command_c" / "layernorm.c").read_text(), "backward",
        (ROWS * COLS, ROWS * COLS, ROWS * COLS), _long(ROWS, COLS)),
}
