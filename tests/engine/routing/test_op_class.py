"""The class of an op follows from whole words of its names, then from what its source does."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.routing.op_class import UNKNOWN, classify, words_of

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parametrize(("op", "expected"), [
    ("linear_attn", "linear attention"), ("LinearAttention", "linear attention"),
    ("linear-attention-fwd", "linear attention"), ("gdn", "linear attention"),
    ("fused_recurrent_gated_delta_rule", "linear attention"), ("chunk_kda", "linear attention"),
    ("selective_scan", "linear attention"), ("Mamba2", "linear attention"),
    ("flash_attention", "attention"), ("mla_decode", "attention"), ("fmha", "attention"),
    ("MultiHeadAttention", "attention"), ("attn2", "attention"), ("FlashMLA", "attention"),
    ("paged_attention_decode", "attention"), ("batch_prefill", "attention"),
    ("attention_prefill_fp8", "attention"), ("scaled_dot_product_attention", "attention"),
    ("grouped_gemm", "MoE"), ("moe_gemm", "MoE"), ("FusedMoE", "MoE"), ("topk_experts", "MoE"),
    ("moe_align_block_size", "MoE"), ("ck_moe_stage2", "MoE"), ("topk_gating", "MoE"),
    ("spmv", "sparse product"), ("csr_matvec", "sparse product"),
    ("gemm", "GEMM"), ("matmul", "GEMM"), ("bf16_mm", "GEMM"), ("linear", "GEMM"),
    ("batched_gemm_a8w8", "GEMM"), ("gemm_a16w16_quant", "GEMM"), ("ScaledMM", "GEMM"),
    ("conv2d", "convolution"), ("depthwise_Conv1d", "convolution"),
    ("all_reduce", "communication"), ("AllReduceRMSNorm", "communication"),
    ("rmsnorm", "norm"), ("RMSNorm", "norm"), ("rms_norm", "norm"), ("layer_norm", "norm"),
    ("fused_add_rmsnorm", "norm"), ("FusedAddRMSNorm", "norm"), ("gemma_rmsnorm", "norm"),
    ("rmsnorm_quant", "norm"), ("cumsum", "scan"), ("scan", "scan"),
    ("per_token_quant_fp8", "quantization"), ("dequantize", "quantization"),
    ("softmax", "reduction"), ("topk", "reduction"), ("TopK", "reduction"),
    ("embedding", "embedding"), ("flash_copy", "embedding"), ("flash_memcpy", "embedding"),
    ("SiLUAndMul", "elementwise"), ("silu_and_mul", "elementwise"), ("RoPE", "elementwise"),
    ("vector_add", "elementwise"), ("comma", UNKNOWN), ("command", UNKNOWN), ("hammer", UNKNOWN),
    ("momentum", UNKNOWN), ("hegemmony", UNKNOWN), ("expertise", UNKNOWN), ("bilinear", UNKNOWN),
    ("moetown", UNKNOWN), ("huffman_decode", UNKNOWN), ("normalize_path", UNKNOWN), ("", UNKNOWN),
])
def test_words_of_a_name_give_the_class(op: str, expected: str) -> None:
    assert classify([op]).name == expected


@pytest.mark.parametrize(("kernel", "expected"), [  # of AITER, vLLM on ROCm, rocBLAS, CK
    ("flatmm_a8w8_blockscale_asm", "GEMM"), ("wvSplitK_hf_sml_", "GEMM"), ("wvSplitKQ", "GEMM"),
    ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32", "GEMM"), ("kernel_gemm_xdl_cshuffle_v3", "GEMM"),
    ("pa_fwd_asm", "attention"), ("pa_ragged", "attention"), ("fa2_fwd", "attention"),
    ("paged_attention_ll4mi_QKV_mfma16_kernel", "attention"), ("FmhaFwdKernel", "attention"),
    ("flydsl_gdr_decode", "linear attention"), ("gla_fwd", "linear attention"),
    ("biased_grouped_topk", "MoE"), ("fused_moe_bf16_asm", "MoE"),
    ("Rmsnorm2dFwd", "norm"), ("rmsnorm2d_fwd_with_add_smoothquant", "norm"),
    ("layernorm2d", "norm"), ("GroupNormalization", "norm"), ("smoothquant_fwd", "quantization"),
    ("cross_device_reduce_1stage", "communication"), ("padded_copy", "embedding"),
])
def test_names_of_amd_kernels_give_the_class(kernel: str, expected: str) -> None:
    assert classify(["run", kernel]).name == expected


@pytest.mark.parametrize(("path", "expected"), [
    ("matmul_c/matmul.c", "GEMM"), ("matmul_triton/kernel.py", "GEMM"),
    ("paged_attention_c/attention.c", "attention"),
    ("paged_attention_triton/kernel.py", "attention"), ("rmsnorm_c/rmsnorm.c", "norm"),
    ("command_c/layernorm.c", "norm"), ("softmax_triton/kernel.py", "reduction"),
])
def test_source_decides_the_class_where_names_do_not(path: str, expected: str) -> None:
    source = (EXAMPLES / path).read_text()
    assert classify(["run"], source, path).name == expected


COPY = "__global__ void copy_rows(float *y, const float *x) { y[threadIdx.x] = x[threadIdx.x]; }"
TILED = """
// flash attention could use this gemm
__global__ void run(float *c, const float *a, const float *b) {
    float acc = 0; for (int k = 0; k < 64; k++) acc += a[k] * b[k]; *c = acc; }
"""


def test_file_names_and_comments_do_not_decide_the_class() -> None:
    assert classify([], COPY, "flash_attention.cu").name == "embedding"
    assert classify(["run"], TILED, "x.cu").name == "GEMM"


def test_product_with_gathered_values_is_no_matrix_product() -> None:
    sparse = TILED.replace("b[k]", "b[col[k]]")
    assert classify(["run"], sparse, "x.cu").name == "sparse product"


def test_ambiguous_word_decides_last() -> None:
    assert classify(["flash"], TILED, "x.cu").name == "GEMM"
    assert classify(["flash"]).name == "attention"
    assert classify(["fused_bias"], TILED, "x.cu").name == "GEMM"


def test_stated_name_comes_before_the_kernels_of_the_source() -> None:
    source = "@triton.jit\ndef matmul_tile(x):\n    pass\n"
    assert classify(["rmsnorm"], f"import triton\n{source}", "k.py").name == "norm"
    assert classify(["run"], f"import triton\n{source}", "k.py").name == "GEMM"


def test_evidence_names_the_word_and_where_it_is() -> None:
    assert classify(["bf16_mm"]).evidence == "'mm' in bf16_mm"
    assert classify([], TILED, "x.cu").evidence == "by what the source does"


def test_words_split_at_capitals_but_not_inside_a_term() -> None:
    assert words_of("FusedMoE_conv2d_v3") == ["fused", "moe", "conv2d", "v"]
    assert words_of("QKVProj") == ["qkv", "proj"]


@pytest.mark.parametrize(("name", "amd"), [
    ("gdn", ("flydsl",)), ("mla", ("tilelang",)), ("moe", ("flydsl", "ck", "asm")),
    ("gemm", ("flydsl", "ck", "asm")), ("rmsnorm", ("flydsl", "tilelang")),
    ("gelu", ("flydsl", "tilelang")), ("quant", ("flydsl", "tilelang")),
    ("", ("flydsl", "tilelang"))])
def test_class_gives_the_languages_for_a_vendor(name: str, amd: tuple[str, ...]) -> None:
    op = classify([name])
    assert op.languages("amd") == amd
    assert op.languages("nvidia") == ("triton", "tilelang", "cute-dsl", "cuda-cpp")
