"""CUDA transformations keep what a kernel computes: device code runs here as C++, thread by thread.

No compiler for a card is needed, and no gain is measured.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from engine.transformations import transformation_registry
from engine.transformations.transformation import DoesNotApply
from harness.search.space import knobs
from tests.support.kernels.c_functions import CFunction, compiled, is_close

ON_CPU = """\
#include <cmath>
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#ifndef __restrict__
#define __restrict__ __restrict
#endif
struct Place { int x, y, z; };
static Place threadIdx, blockIdx, blockDim = {32, 1, 1}, gridDim = {4, 1, 1};
"""
LAUNCH = """
extern "C" void launch(PARAMETERS) {
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
            ENTRY(ARGUMENTS);
}
"""
COLUMNS = """\
// Column means and variances, one thread per column.
extern "C" __global__ void column_stats(const float* x, float* mean, float* out, int rows,
                                        int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    float sum = 0.0f;
    for (int r = 0; r < rows; ++r) sum += x[(long long)r * cols + c];
    float m = sum / rows;
    float sq = 0.0f;
    for (int r = 0; r < rows; ++r) {
        float d = x[(long long)r * cols + c] - m;
        sq += d * d;
    }
    mean[c] = m;
    out[c] = sq / rows;
}
"""
STRIDED = """\
#include <math.h>

__device__ __forceinline__ float half_of(float v) { return 0.5f * v; }

__global__ void __launch_bounds__(256, 2)
scaled(const float *__restrict__ x, float *__restrict__ out, float scale, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        out[i] = half_of(x[i] / scale);
}

void reference(const float *x, float *out, float scale, int n) {
    for (int i = 0; i < n; i++) out[i] = x[i] / scale;
}
"""
PARTS = ("const float *a, float *b, float *c, int rows, int cols", "a, b, c, rows, cols")
CASES = {
    "one thread a column": (
        COLUMNS, CFunction(ON_CPU, "launch", (90 * 101, 101, 101),
                           (ctypes.c_int(90), ctypes.c_int(101))), "column_stats", PARTS,
        {"cuda-unrolled-loops", "cuda-accumulators", "cuda-restrict"}),
    "strides of the grid": (
        STRIDED, CFunction(ON_CPU, "launch", (1000, 1000), (ctypes.c_float(3), ctypes.c_int(1000))),
        "scaled", ("const float *a, float *b, float scale, int n", "a, b, scale, n"),
        {"cuda-unrolled-loops", "cuda-reciprocal"})}


@pytest.mark.parametrize("name", CASES)
def test_changed_device_code_computes_the_same_with_every_knob(name: str, tmp_path: Path) -> None:
    source, function, entry, (parameters, arguments), wanted = CASES[name]

    def result(text: str) -> list[float]:
        launch = LAUNCH.replace("PARAMETERS", parameters).replace(
            "ARGUMENTS", arguments).replace("ENTRY", entry)
        return compiled(function, ON_CPU + text + launch, tmp_path, "cpp")

    before, applied = result(source), set()
    for each in transformation_registry.BY_LANGUAGE["cuda"]:
        try:
            changed = each.apply(source)
        except DoesNotApply as reason:
            assert len(str(reason)) > 20
            continue
        applied.add(each.name)
        assert is_close(before, result(changed.source)), changed.source
        declared = {knob.name: knob for knob in knobs.find(changed.source, language="cuda")}
        for knob in changed.knobs:
            for choice in declared[knob].choices:
                text = knobs.apply(changed.source, {knob: choice}, language="cuda")
                assert is_close(before, result(text)), (knob, choice)
        left = {again.name for again in transformation_registry.applicable(changed.source, "cuda")}
        assert each.name not in left and left <= wanted
    assert applied == wanted


def test_functions_of_the_host_stay_as_they_are() -> None:
    for each in transformation_registry.applicable(STRIDED, "hip"):
        changed = transformation_registry.find(each.name)
        assert changed is not None
        text = changed.apply(STRIDED).source
        assert STRIDED[STRIDED.index("void reference"):] in text


@pytest.mark.parametrize(("transformation", "body"), [
    ("cuda-accumulators", "for (int i = 0; i < n; i++) { sum += x[i]; __syncthreads(); }"),
    ("cuda-accumulators", "for (int i = 0; i < n; i++) { sum += x[i]; atomicAdd(out, sum); }"),
    ("cuda-accumulators", "for (int i = 0; i < n; i++) { sum += x[i]; out[i] = sum; }"),
    ("cuda-accumulators", "for (int i = 0; i < n; i++) sum += __shfl_xor_sync(~0u, x[i], 1);"),
    ("cuda-unrolled-loops", "#pragma unroll 8\n    for (int i = 0; i < n; i++) sum += x[i];"),
    ("cuda-unrolled-loops", "sum = x[0];"),
    ("cuda-reciprocal", "for (int i = 0; i < n; i++) out[i] = x[i] / out[i];")])
def test_device_code_that_a_change_could_break_is_left_alone(
        transformation: str, body: str) -> None:
    source = "__global__ void kernel(const float *x, float *out, int n) {\n    float sum = 0;\n" \
        f"    {body}\n    out[0] = sum;\n}}\n"
    changed = transformation_registry.find(transformation)
    assert changed is not None
    with pytest.raises(DoesNotApply):
        changed.apply(source)


def test_templates_and_launches_do_not_hide_plain_kernels() -> None:
    source = COLUMNS + """
template <int TILE> __global__ void tiled(const float *x, float *out) {
    for (int i = 0; i < TILE; i++) out[i] = x[i];
}
void start(const float *x, float *out, int n, cudaStream_t stream) {
    column_stats<<<(n + 255) / 256, 256, 0, stream>>>(x, out, out, n, n);
}
"""
    assert "cuda-unrolled-loops" in {
        each.name for each in transformation_registry.applicable(source, "cuda")}


SEVERAL = """
__device__ float total(const float *x, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum;
}
__global__ void other(float *x, float *y) {
    for (int i = 0; i < 4; i++) y[i] = x[i];
}
extern "C" __global__ void entry(float *x, float *y, int n) {
    y[threadIdx.x] = total(x, n);
}
void go(float *x, float *y, int n) { entry<<<1, 32>>>(x, y, n); }
"""


@pytest.mark.parametrize(("entry", "lines"), [
    ("entry", "line 4"), ("other", "line 8"), ("go", "line 4"), ("", "lines 4 and 8")])
def test_only_the_entry_and_what_it_needs_is_changed(entry: str, lines: str) -> None:
    unrolled = transformation_registry.find("cuda-unrolled-loops")
    assert unrolled is not None
    changed = transformation_registry.apply(unrolled, SEVERAL, "cuda", entry)
    assert changed.what == f"unrolled loops, {lines}"
    assert [line for line in changed.source.splitlines() if "UNROLL" not in line] == \
        SEVERAL.splitlines()
