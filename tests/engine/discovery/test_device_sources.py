"""Signatures and launches in CUDA and HIP sources become a task's arguments and its launch."""

from __future__ import annotations

import pytest

from engine.discovery.project import device_sources
from harness.tasks.target import Arg, Launch

KERNEL = """
#include <cuda_fp16.h>
#define TILE 256  // kopt: knob TILE in [128, 256]
constexpr int WARPS = 4;
__device__ float helper(float x) { return x; }
extern "C" __global__ void __launch_bounds__(TILE)
scale(const __half *__restrict__ x, float *out, float *sum, float factor, int cols) {
    int i = blockIdx.x * TILE + threadIdx.x;
    if (i < cols) { out[i] = factor * helper(x[i]); sum[0] += out[i]; }
}
"""
LAUNCHER = """
extern "C" void run(const __half *x, float *out, float *sum, float factor, int n,
                    cudaStream_t stream) {
    int blocks = (n + TILE - 1) / TILE;
    scale<<<blocks, dim3(TILE), TILE * sizeof(float), stream>>>(x, out, sum, factor, n);
}
"""
ARGS = (Arg(name="x", dtype="float16", shape=()), Arg(name="out", dtype="float32", shape=(),
                                                      role="output"),
        Arg(name="sum", dtype="float32", shape=(), role="inout"),
        Arg(name="factor", dtype="float32"))


def test_pointers_scalars_and_sizes_are_inferred() -> None:
    [kernel] = device_sources.functions("kernel.cu", KERNEL)
    assert (kernel.name, kernel.language, kernel.is_global) == ("scale", "cuda", True)
    assert kernel.args == (*ARGS, Arg(name="cols", dtype="int32", value="cols"))
    assert kernel.launch is None


def test_launcher_comes_first_without_its_stream() -> None:
    host, kernel = device_sources.functions("kernel.cu", KERNEL + LAUNCHER)
    assert (host.name, host.is_global, host.launch) == ("run", False, None)
    assert host.args == (*ARGS, Arg(name="n", dtype="int32", value="n"))
    assert kernel.name == "scale"


def test_launch_is_expressed_in_kernel_parameters_and_constants() -> None:
    _, kernel = device_sources.functions("kernel.cu", KERNEL + LAUNCHER)
    assert kernel.launch == Launch(grid=("(cols + TILE - 1) // TILE",), block=("TILE",),
                                   shared_bytes="TILE * 4")


@pytest.mark.parametrize(("declarations", "launch", "grid", "block"), [
    ("dim3 grid(cdiv(n, TILE), 2);", "<<<grid, 32 * WARPS>>>",
     ("((cols + TILE - 1) // (TILE))", 2), ("32 * WARPS",)),
    ("dim3 grid = dim3(n, 1, 1); dim3 block{32, 8};", "<<<grid, block>>>", ("cols", 1, 1),
     (32, 8)),
    ("const int threads = 128;", "<<<(unsigned int)((n + threads - 1) / threads), threads>>>",
     ("((cols + threads - 1) // threads)",), ("threads",))])
def test_launch_is_read_through_dim3_casts_and_constants(
        declarations: str, launch: str, grid: tuple[object, ...],
        block: tuple[object, ...]) -> None:
    text = KERNEL + f'void go(int n) {{ {declarations} scale{launch}(x, out, sum, 1.0f, n); }}'
    [kernel] = device_sources.functions("kernel.cu", text)
    assert kernel.launch == Launch(grid=grid, block=block)  # type: ignore[arg-type]


@pytest.mark.parametrize("launch", ["<<<blocks_of(n), 256>>>", "<<<n > 5 ? 1 : 2, 256>>>"])
def test_launch_that_is_not_arithmetic_is_not_read(launch: str) -> None:
    text = KERNEL + f"void go(int n) {{ scale{launch}(x, out, sum, 1.0f, n); }}"
    [kernel] = device_sources.functions("kernel.cu", text)
    assert kernel.launch is None


def test_template_becomes_a_kernel_for_its_launched_instance() -> None:
    text = """
template <typename T, int BLOCK> __global__ void copy(const T *x, T *out, int n) { out[0] = x[0]; }
"""
    assert device_sources.functions("a.cu", text) == []
    [kernel] = device_sources.functions(
        "a.cu", text + "void go(int n) { copy<float, 64><<<n, 64>>>(x, out, n); }")
    assert kernel.name == "copy<float,64>" and kernel.args[0].dtype == "float32"


@pytest.mark.parametrize(("path", "source", "language"), [
    ("a.cu", "hipMalloc", "cuda"), ("a.hip", "", "hip"),
    ("a.cpp", "#include <hip/hip_runtime.h>", "hip"), ("a.cpp", "__global__ void f() {}", "cuda"),
    ("a.cpp", "int f() { return 1; }", "c"), ("a.cu", "int f() { return 1; }", "cuda")])
def test_language_follows_the_suffix_or_an_include(
        path: str, source: str, language: str) -> None:
    assert device_sources.language_of(path, source) == language


def test_untyped_pointer_has_the_type_to_which_it_is_cast() -> None:
    text = """extern "C" void run(const void *x, void *out, int n) {
    go((const float *)x, static_cast<__half *>(out), n); }"""
    [host] = device_sources.functions("a.cu", text)
    assert [(arg.dtype, arg.role) for arg in host.args[:2]] == [
        ("float32", None), ("float16", "output")]


def test_launch_may_use_a_size_that_the_kernel_does_not_take() -> None:
    text = KERNEL + "void go(int rows) { scale<<<rows * 2, 64>>>(x, out, sum, 1.0f, 7); }"
    [kernel] = device_sources.functions("kernel.cu", text)
    assert kernel.launch == Launch(grid=("rows * 2",), block=(64,))


def test_extern_c_block_is_read_without_static_functions() -> None:
    text = 'extern "C" {\nstatic int no(int n) { return n; }\nint yes(float *x, int n) {}\n}'
    [host] = device_sources.functions("a.cu", text)
    assert host.name == "yes"


@pytest.mark.parametrize(("pragma", "flags"), [
    ("", ()), ("#pragma omp parallel for\n", ("-fopenmp",))])
def test_plain_cpp_is_built_by_the_c_compiler(pragma: str, flags: tuple[str, ...]) -> None:
    """It was called CUDA, which needs an NVIDIA GPU."""
    text = f"""#include <vector>
extern "C" void scale(const float *x, float *out, int n) {{
{pragma}for (int i = 0; i < n; i++) out[i] = 2 * x[i]; }}"""
    [host] = device_sources.functions("scale.cpp", text)
    assert (host.language, host.flags) == ("c", flags)
    assert [arg.role for arg in host.args[:2]] == [None, "output"]
