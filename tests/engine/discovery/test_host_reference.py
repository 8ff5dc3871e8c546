"""A program's own CPU version of its kernel becomes the task's reference, in double."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from engine.discovery.new import reference_trial
from engine.discovery.program import host_reference
from engine.discovery.program.host_reference import HostReference
from engine.discovery.project import device_sources
from harness.compile import c_compiler
from harness.tasks.target import Arg, ConfigClass, Target

KERNEL = """
#define EPS 1e-6f
const int SIDE = 4;
constexpr float weights[SIDE] = {0.1f, 0.2f, 0.3f, 0.4f};
__host__ __device__ float weighted(float x, int i) { return x * weights[i % SIDE]; }
__device__ float only_here(float x) { return x; }
static inline float third(float x) { return x / 3.0f; }
__global__ void norm_rows(const float *x, float *y, int *count, int n, float scale) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { y[i] = scale * weighted(x[i], i) / 3; count[i] = i; }
}
"""
BODY = """{
    float sum = 0.f;
    for (int i = 0; i < n; i++) {
        y[i] = scale * third(weighted(x[i], i)) + 0 * EPS;
        sum += fabsf(y[i]) * std::min(expf(0.0f), 1.0f);
        count[i] = i;
    }
    printf("%f\\n", sum);
}
"""
SIGNATURE = "void norm_rows_cpu(float *x, float *y, int *count, int n, float scale) "
MAIN = """
int main() {
    float *h_a, *h_b, *d_a, *d_b; int *h_c, *d_c; int len = 64;
    norm_rows<<<1, 64>>>(d_a, d_b, d_c, len, 0.7f);
    cpu_version(len, 0.7f, h_c, h_a, h_b);
}
"""


def found(source: str, **others: str) -> list[HostReference]:
    kernel = next(each for each in device_sources.functions("a.cu", source, list(others.values()))
                  if each.name == "norm_rows")
    return list(host_reference.find(kernel, source, others))


@pytest.mark.parametrize(("signature", "rest"), [
    (SIGNATURE, ""), (SIGNATURE.replace("norm_rows_cpu", "reference"), ""),
    ("static void norm_rows_ref(const float *__restrict__ a, float *b, int *c, int m, float f) ",
     ""),
    ("void cpu_version(int m, float f, int *c, const float *a, float *b) ", MAIN)],
    ids=["names", "usual name", "order", "program"])
def test_cpu_function_computes_in_double(tmp_path: Path, signature: str, rest: str) -> None:
    body = BODY
    if "float *b" in signature:
        for before, after in (("x[i]", "a[i]"), ("y[i]", "b[i]"), ("count[", "c["), ("< n", "< m"),
                              ("scale *", "f *")):
            assert before in body
            body = body.replace(before, after)
    [reference] = found(KERNEL + signature + body + rest)
    (tmp_path / "reference.cpp").write_text(reference.text)
    target = Target(op="a", language="cuda", source="a.cu", entry="a", classes=(), args=(),
                    reference=f"reference.cpp:{reference.name}")
    c_compiler.build_reference(target, tmp_path, tmp_path / "reference.so")
    call = getattr(ctypes.CDLL(str(tmp_path / "reference.so")), reference.name)
    x, y = (ctypes.c_double * 5)(1, 2, 3, 4, 5), (ctypes.c_double * 5)()
    count = (ctypes.c_int32 * 5)()
    call(x, y, count, 5, ctypes.c_double(0.7))
    assert list(y) == pytest.approx(
        [0.7 * value * weight / 3 for value, weight in zip(
            x, (0.1, 0.2, 0.3, 0.4, 0.1), strict=True)], rel=1e-14)
    assert list(count) == [0, 1, 2, 3, 4]


def test_sizes_of_the_cpu_function_may_multiply_to_one_of_the_kernel(tmp_path: Path) -> None:
    """The kernel's size is divided by the number that the program passes."""
    source = """
__global__ void scale_rows(float *out, const float *in, int N, int C) { out[0] = in[0]; }
void scale_rows_cpu(float *out, const float *in, int B, int T, int C) {
    for (int i = 0; i < B * T * C; i++) out[i] = in[i] * (1 + i / C % T);
}
void launch(float *out, const float *in, int B, int T, int C) {
    const int N = B * T;
    scale_rows<<<N, 64>>>(out, in, N, C);
}
int main() {
    int B = 8, T = 32, C = 16;
    scale_rows_cpu(out, in, B, T, C);
    launch(d_out, d_in, B, T, C);
}
"""
    [kernel] = device_sources.functions("a.cu", source)
    [reference] = host_reference.find(kernel, source, {})
    assert "program::scale_rows_cpu((double *)out, (const double *)in, (int)(N / 32), (int)32, " \
        "(int)C);" in reference.text
    assert list(host_reference.find(kernel, source.replace("B * T;", "B * B;"), {})) == []


def test_cpu_function_of_another_file_is_found() -> None:
    [reference] = found(KERNEL, **{"gold.cpp": "float third(float x) { return x; }\n"
                                   "float weighted(float x, int i) { return x; }\n"
                                   + SIGNATURE + BODY})
    assert reference.name == "norm_rows_cpu"


@pytest.mark.parametrize(("signature", "body"), [
    ("void launch(float *x, float *y, int *count, int n, float scale) ", BODY),  # no usual name
    ("void norm_rows_cpu(float *x, float *y, int n, float scale) ", "{ y[0] = x[0]; }"),
    (SIGNATURE, "{ y[0] = x[0]; x[0] = count[0] = n; }"),  # writes an input
    (SIGNATURE, "{ y[0] = x[0]; }"),  # does not write all
    ("void other_cpu(float *a, float *b, int *c, int m, float f) ", "{ b[0] = a[0]; c[0] = m; }"),
    ("void norm_rows_cpu(int *x, float *y, int *count, int n, float scale) ",
     "{ y[0] = x[0]; count[0] = 1; }"),
    ("float norm_rows_cpu(float *x, float *y, int *count, int n, float scale) ", BODY),
    (SIGNATURE, BODY.replace("third(", "only_here(")),  # runs on the GPU
    (SIGNATURE, BODY.replace("third(weighted(x[i], i))", "*(int *)&x[i]"))])
def test_function_that_does_not_agree_with_the_kernel_is_not_taken(
        signature: str, body: str) -> None:
    assert found(KERNEL + signature + body) == []


TARGET = Target(
    op="a", language="cuda", source="a.cu", entry="a", reference="reference.cpp:a", args=(
        Arg(name="x", dtype="float32", shape=("n",)),
        Arg(name="y", dtype="float16", shape=("n",), role="output"),
        Arg(name="scale", dtype="float32", value=0.5), Arg(name="n", dtype="int32", value="n")),
    classes=(ConfigClass(name="small", shape={"n": 8}), ConfigClass(name="big", shape={"n": 99})))


@pytest.mark.parametrize(("body", "why"), [
    ("for (int i = 0; i < n; i++) y[i] = scale * x[i];", ""),
    ("y[0] = unknown(x[0]);", "does not compile alone: reference.cpp:1:"),
    ("if (n == 99) __builtin_trap();", "does not run for class big: ")])
def test_reference_has_to_compile_and_to_run(body: str, why: str) -> None:
    text = f'extern "C" void a(double *x, double *y, double scale, int n) {{ {body} }}'
    problem = reference_trial.problem(TARGET, text)
    assert problem.startswith(why) and bool(problem) == bool(why)


def test_reference_in_c_needs_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert reference_trial.problem(TARGET, "") == "does not compile alone: no C compiler found"
