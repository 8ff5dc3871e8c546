"""Functions of an emptied source return at once; the source still builds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engine.verify.emptied_source import emptied

C = """\
#include <stddef.h>
static float twice(float x) { return 2 * x; }
static void row(float *restrict out, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        out[i] = twice(x[i]);
}
void scale(float *out, const float *x, size_t n) { row(out, x, n); }
float dot(const float a[], const float b[], int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}
"""
CUDA = """\
namespace ops {
template <typename T, int N>
__global__ void __launch_bounds__(256) add(T* __restrict__ out, const T* in) { out[0] += in[0]; }
}
extern "C" void launch(float *out, const float *in) { ops::add<float, 3><<<1, 256>>>(out, in); }
"""
TRITON = '''\
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"B": 64})], key=["n"])
@triton.jit
def scale(x, out, n, B: tl.constexpr):
    """Double ü."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

def run(x, out):
    scale[(1,)](x, out, x.numel())
'''


def test_functions_of_c_return_at_once_and_build_without_a_warning(tmp_path: Path) -> None:
    text = emptied("src/scale.c", C)
    assert text is not None and text.replace(" return; ", "").replace(" return 0; ", "") == C
    assert "size_t n) { return;  row(out, x, n); }" in text and "n)\n{ return 0; \n" in text
    assert "static float twice(float x) { return 2 * x; }" in text  # no pointer: called by others
    (tmp_path / "scale.c").write_text(text)
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-c", "scale.c"], cwd=tmp_path,
                   check=True)


def test_kernels_of_the_device_are_emptied_and_launches_stay() -> None:
    text = emptied("add.cu", CUDA)
    assert text == CUDA.replace("{ out[0]", "{ return;  out[0]")
    assert emptied("add.hip", CUDA) == text
    assert emptied("launch.cpp", CUDA.replace("__global__", "")) == CUDA.replace(
        "__global__", "").replace("{ out[0]", "{ return;  out[0]").replace(
            "{ ops", "{ return;  ops")


def test_body_of_a_triton_kernel_becomes_pass() -> None:
    head, _, rest = TRITON.partition('    """Double')
    assert emptied("kernel.py", TRITON) == f"{head}    pass\n\ndef{rest.partition('def')[2]}"


@pytest.mark.parametrize(("path", "text"), [
    ("kernel.py", "def scale(x):\n    return 2 * x\n"), ("kernel.py", "def broken(:\n"),
    ("kernel.rs", "pub fn scale(x: &mut [f32]) {}\n"), ("scale.c", "#define N 4\n"),
    ("scale.c", "int main(int argc, char **argv) { return argc - (argv != 0); }\n"),
    ("scale.c", "void print_row(const float *x) { (void)x; }\n"),
    ("scale.c", "float *row(float *x) { return x + 1; }\n"),
    ("scale.c", "void gemm_ref(float *x) { *x = 1; }\nvoid fillRandom(float *x) { *x = 1; }\n"),
])
def test_nothing_is_emptied_where_nothing_computes_a_result(path: str, text: str) -> None:
    assert emptied(path, text) is None
