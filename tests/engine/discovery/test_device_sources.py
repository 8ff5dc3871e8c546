"""Signatures and launches in CUDA and HIP sources become a task's arguments and its launch."""

from __future__ import annotations

import pytest

from engine.discovery.project import device_sources
from harness.tasks.target import Arg

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


def test_launcher_comes_first_without_its_stream() -> None:
    host, kernel = device_sources.functions("kernel.cu", KERNEL + LAUNCHER)
    assert (host.name, host.is_global) == ("run", False)
    assert host.args == (*ARGS, Arg(name="n", dtype="int32", value="n"))
    assert kernel.name == "scale"


@pytest.mark.parametrize(("body", "roles"), [
    ("m[threadIdx.x] = 0.9f * m[threadIdx.x]; out[threadIdx.x] = m[threadIdx.x];", "inout output"),
    ("float *p = out + threadIdx.x; *p += 1; m[0] = 1;", "output inout"),
    ("float *p = &out[threadIdx.x]; p[0] = 1; m[0] = out[0];", "output output"),
    ("out[threadIdx.x] = m[threadIdx.x];", "input output"),
    ("atomicAdd(m, 1.0f); atomicMax(&out[0], m[0]);", "inout inout"),
    ("reinterpret_cast<float4 *>(out)[0] = reinterpret_cast<float4 *>(m)[0];", "input output"),
    ("m[0] = static_cast<float>(m[1]); out[0] = helper(out[0]);", "inout inout"),
    ("auto t = cg::this_thread_block(); m[t.x] += 1; out[t.x] = m[t.x];", "inout output"),
    ("asm(\"st.global.f32 [%0], %1;\" :: \"l\"(m), \"f\"(out[0])); out[0] = 0;", "output inout"),
    ("auto p = m; p[0] = 1; out[0] = 2;", "output output")])
def test_role_follows_the_first_access(body: str, roles: str) -> None:
    """A regular expression saw neither pointers to elements nor atomic functions nor casts."""
    [kernel] = device_sources.functions(
        "a.cu", f"__global__ void decay(float *m, float *out) {{ {body} }}")
    assert [arg.kind for arg in kernel.args] == roles.split()


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


def test_function_of_cpp_that_reads_its_output_first_gets_it_as_an_input_too() -> None:
    [host] = device_sources.functions("scale.cpp", """extern "C" void scale(float *x, int n) {
for (int i = 0; i < n; i++) x[i] *= 2; }""")
    assert host.args[0].role == "inout"
