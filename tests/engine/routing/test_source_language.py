"""A source's language is that of its kernels, not of its file's suffix."""

from __future__ import annotations

import pytest

from engine.routing.source_language import detect, kernel_names

TRITON = "import torch, triton\nimport triton.language as tl\n@triton.jit\ndef k(x): pass\n"
INLINE = 'import torch\nSOURCE = """\n__global__ void scale(float *x) { }\n"""\n'


@pytest.mark.parametrize(("path", "source", "language"), [
    ("a.py", "import torch\ndef run(x): return x @ x\n", "pytorch"),
    ("a.py", TRITON, "triton"),
    ("a.py", "from triton import jit\n@jit\ndef k(x): pass\n", "triton"),
    ("a.py", "import torch, triton\ndef run(x): return triton.cdiv(x, 2)\n", "pytorch"),
    ("a.py", "import torch\n# was: @triton.jit\n'import tilelang'\n", "pytorch"),
    ("a.py", "import tilelang\nimport tilelang.language as T\n@tilelang.jit\ndef k(): pass\n",
     "tilelang"),
    ("a.py", "import flydsl.compiler as flyc\n@flyc.kernel\ndef k(): pass\n", "flydsl"),
    ("a.py", "import cutlass.cute as cute\n@cute.kernel\ndef k(): pass\n", "cute-dsl"),
    ("a.py", INLINE, "cuda"), ("a.py", INLINE.replace("{ }", "{ hipDeviceSynchronize(); }"), "hip"),
    ("a.py", "import triton as tr\n@tr.jit\ndef k(x): pass\n", "triton"),
    ("a.py", "from triton.experimental import gluon\n@gluon.jit\ndef k(x): pass\n", "triton"),
    ("a.py", "import triton\nfrom tilelang import jit\n@jit\ndef k(x): pass\n", "tilelang"),
    ("a.py", "from flydsl.compiler import kernel\n@kernel\ndef k(): pass\n", "flydsl"),
    ("csrc/ck_gemm_a8w8/a.cu", "#include <hip/hip_runtime.h>\nvoid f(Row r);", "ck"),
    ("ck/a.cu", "#include <cuda_runtime.h>\n", "cuda"), ("ck/a.c", "int f(void);", "c"),
    ("a.cpp", "using G = DeviceGemm_Xdl_CShuffle<Row, Col>;", "ck"),
    ("a.py", "def run(x): return x\n", "python"), ("a.py", "import triton\ndef (", "triton"),
    ("a.cu", "__global__ void k() {}", "cuda"), ("a.hip", "__global__ void k() {}", "hip"),
    ("a.cu", "#include <hip/hip_runtime.h>\n__global__ void k() {}", "hip"),
    ("a.cu", "#ifdef A\n#include <hip/hip_runtime.h>\n#else\n#include <cuda_runtime.h>\n#endif",
     "cuda"),
    ("a.cpp", '#include "ck_tile/core.hpp"\n#include <hip/hip_runtime.h>', "ck"),
    ("a.cpp", "// hipMalloc\n#include <cuda_runtime.h>", "cuda"),
    ("a.cpp", "__global__ void k() {}", "cuda"), ("a.c", "int run(void) { return 0; }", "c"),
    ("a.h", "", "unknown"),
])
def test_language_is_that_of_the_kernels(path: str, source: str, language: str) -> None:
    assert detect(source, path) == language


@pytest.mark.parametrize(("path", "source", "declared", "language"), [
    ("a.py", "import torch\n", "TRITON", "triton"), ("a.py", "import torch\n", "PYTHON", "pytorch"),
    ("a.cpp", "__global__ void k() {}", "HIP", "hip"),
    ("a.cpp", "int x = ck::index;", "HIP", "ck"),
    ("a.cpp", "__global__ void k() {}", "Composable Kernel", "ck"),
    ("a.py", "import tilelang\n@tilelang.jit\ndef k(): pass\n", "TRITON", "tilelang")])
def test_language_comes_from_the_kernel_then_the_manifest_then_the_file(
        path: str, source: str, declared: str, language: str) -> None:
    assert detect(source, path, declared) == language


def test_kernels_are_named_in_the_order_of_the_source() -> None:
    assert kernel_names(TRITON, "a.py") == ["k"]
    assert kernel_names(INLINE, "a.py") == ["scale"]
    assert kernel_names("__global__ void __launch_bounds__(256) a(int x) {}\n"
                        "// __global__ void b() {}\n__global__ void c() {}", "a.cu") == ["a", "c"]
