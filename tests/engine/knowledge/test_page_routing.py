"""The first page of an excerpt is about the target's form of its op."""

from __future__ import annotations

import pytest

from engine.knowledge import page_library, page_routing
from engine.knowledge.page_routing import Subject
from engine.routing.op_class import classify
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric

OP_PAGES = [page for page in page_library.built_in() if page.kind == "ops"]
BY_NAME = {
    "gemm": ("matmul", "gemm_bf16", "linear", "splitk_gemm", "matvec", "fp8_gemm", "mm"),
    "batched-gemm": ("bmm", "batched_matmul", "batch_matmul", "grouped_gemm", "BatchedGemm"),
    "moe": ("fused_moe", "topk_gating", "moe_align_block_size"),
    "attention": ("attention", "flash_fwd", "fmha", "attention_prefill"),
    "paged-attention": ("paged_attention", "flash_decoding", "attention_decode", "pa_decode"),
    "norm": ("rms_norm", "layernorm", "GroupNorm"), "convolution": ("conv2d", "depthwise_conv1d"),
    "softmax": ("softmax", "log_softmax", "cross_entropy", "logsumexp", "mean_loss"),
    "reduction": ("reduction", "argmax", "topk", "row_sum", "max"),
    "elementwise": ("gelu", "silu_and_mul", "vector_add", "transpose", "embedding"),
    "rope": ("rope", "rotary_embedding", "apply_rotary_emb"), "scan": ("cumsum", "prefix_sum"),
    "linear-attention": ("gated_delta_rule", "mamba2", "selective_scan", "linear_attention"),
    "quantisation": ("per_token_quant_fp8", "dequantize"),
}
PRODUCT = """\
void kernel(const float *a, const float *b, float *c, int m, int n, int k) { // not batched
    for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) {
        float sum = 0; for (int p = 0; p < k; p++) sum += a[i * k + p] * b[p * n + j];
        c[i * n + j] = sum; } }
"""
TILES = """\
import triton, triton.language as tl
@triton.jit
def kernel(a, b, c, K, BLOCK: tl.constexpr):
    '''Grouped order of tiles.'''
    GROUP_SIZE = 8
    sums = tl.dot(tl.load(a), tl.load(b))
    tl.store(c, sums)
"""
ATTENTION = "import torch\ndef run(q, k, v, {}):\n    return torch.softmax(q @ k, -1) @ v\n"
BY_SOURCE = (
    ("k.c", PRODUCT, "gemm"), ("k.py", TILES, "gemm"),
    ("k.py", "import torch\ndef run(x, y):\n    return torch.bmm(x, y) + F.linear(x, y)\n",
     "batched-gemm"),
    ("k.c", "void run(float *x) { for (;;) { m = fmaxf(m, *x); s += expf(*x - m); } }", "softmax"),
    ("k.py", ATTENTION.format("scale"), "attention"),
    ("k.py", ATTENTION.format("block_tables"), "paged-attention"))


@pytest.mark.parametrize(("page", "names"), BY_NAME.items(), ids=BY_NAME)
@pytest.mark.parametrize(("language", "gpu"), [("triton", "sm_90"), ("c", ""), ("hip", "gfx942")])
def test_target_named_like_a_page_gets_it_first(page: str, names: tuple[str, ...], language: str,
                                                gpu: str) -> None:
    for name in names:
        subject = Subject(op=classify([name]).name, names=(name,), language=language, gpu=gpu)
        text = page_library.load(None).find(f"ops/{page}").text
        assert page_routing.excerpt(subject).startswith(text.strip()), name


def test_each_op_page_comes_first_for_some_target() -> None:
    assert {f"ops/{page}" for page in BY_NAME} == {page.name for page in OP_PAGES}


@pytest.mark.parametrize(("path", "source", "page"), BY_SOURCE)
def test_source_decides_where_no_name_does(path: str, source: str, page: str) -> None:
    target = CommandTarget(op="kernel", command="bench", csv="b.csv", source=path,
                           check=CheckColumn(column="ok"), metrics=(Metric(name="us"),))
    subject = page_routing.subject_of(target, source, "sm_90")
    assert page_routing.relevant(subject)[0].name == f"ops/{page}"


def test_page_about_another_form_comes_after_all_others() -> None:
    plain = Subject(op="GEMM", names=("matmul",), language="triton", gpu="sm_90")
    names = [page.name for page in page_routing.relevant(plain)]
    assert names.index("ops/batched-gemm") == len(names) - 1 > names.index("backend/triton")
