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


HELPERS = """
#define AS_FLOAT4(pointer) (reinterpret_cast<float4 *>(&(pointer))[0])
template <typename T> __device__ T half_of(T value) { return value * T(0.5); }
__device__ void put(float &to, float value) { to = value; }
"""


@pytest.mark.parametrize(("body", "roles"), [
    ("y[i] = x[i];", "input output"),
    ("y[i] = half_of<float>(x[i]) + __expf(x[i]);", "input output"),
    ("y[i] = __ldg(&x[i]) + __ldg(x + i);", "input output"),
    ("float4 v = AS_FLOAT4(x[4 * i]); y[i] = v.x;", "input output"),
    ("AS_FLOAT4(y[4 * i]) = AS_FLOAT4(x[4 * i]);", "input output"),
    ("const auto *p = reinterpret_cast<const float4 *>(x); y[i] = p[i].x;", "input output"),
    ("namespace_name::sync(); y[i] = static_cast<float>(x[i]);", "input output"),
    ("atomicAdd(&y[0], x[i]);", "input inout"), ("atomicAdd(y, x[i]);", "input inout"),
    ("y[i] += x[i];", "input inout"), ("put(y[i], x[i]);", "input output"),
    ("std::swap(x[i], y[i]);", "inout inout"), ("y[i] = x[i]; x[i] = 0;", "inout output"),
    ("SOMETHING(x[i]); y[i] = 1;", "output output")])
def test_pointer_without_const_has_the_role_that_the_kernel_shows(body: str, roles: str) -> None:
    text = f"#include <cstdio>\n{HELPERS}__global__ void f(float *x, float *y, int n) {{\n" \
        f"    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    {body}\n}}\n" \
        "int main() { float *x, *y; f<<<1, 32>>>(x, y, 32); std::vector<float> z{1.0f}; }"
    [kernel] = device_sources.functions("a.cu", text)
    assert " ".join(arg.kind for arg in kernel.args[:2]) == roles


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


def test_advice_names_the_file_that_has_the_kernels() -> None:
    main = '#include "kernels.cuh"\nint main() { scale<<<1, 32>>>(x, out, sum, 1.0f, 7); }'
    others = {"readme.h": "int helper(int n) { return n; }", "src/kernels.cuh": KERNEL}
    assert device_sources.functions("main.cu", main, list(others.values())) == []
    assert "kopt new src/kernels.cuh" in device_sources.advice(main, others)
    assert "kopt new" not in device_sources.advice(main, {"readme.h": others["readme.h"]})
    tiled = {"kernels.cuh": "template <int N> __global__ void f(float *x) { x[0] = N; }",
             "run.cu": "void run(float *x) { const int SIDE = 8; f<SIDE><<<1, 8>>>(x); }"}
    assert "kopt new kernels.cuh" in device_sources.advice("int main() { run(x); }", tiled)
def test_function_of_cpp_that_reads_its_output_first_gets_it_as_an_input_too() -> None:
    [host] = device_sources.functions("scale.cpp", """extern "C" void scale(float *x, int n) {
for (int i = 0; i < n; i++) x[i] *= 2; }""")
    assert host.args[0].role == "inout"
