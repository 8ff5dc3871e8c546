"""Ops are classified by their words, special classes first, and routed to what is installed."""

from __future__ import annotations

import pytest

from engine.planning import survey
from engine.planning.survey import op_class, route_rewrite


@pytest.mark.parametrize(("op", "expected"), [
    ("linear_attn", "linear-attention"), ("LinearAttention", "linear-attention"),
    ("linear-attention-fwd", "linear-attention"), ("gdn", "linear-attention"),
    ("gated_delta_net", "linear-attention"), ("flash_attention", "attention"),
    ("mla_decode", "attention"), ("MultiHeadAttention", "attention"), ("fmha", "attention"),
    ("grouped_gemm", "moe"), ("moe_gemm", "moe"), ("fused_moe", "moe"), ("topk_experts", "moe"),
    ("gemm", "gemm"), ("matmul", "gemm"), ("bf16_mm", "gemm"), ("linear", "gemm"),
    ("batched_gemm_a8w8", "gemm"), ("rmsnorm", "norm"), ("layer_norm", "norm"),
    ("softmax", "norm"), ("quant_fp8", "norm"), ("comma", "unknown"), ("command", "unknown"),
    ("hammer", "unknown"), ("momentum", "unknown"), ("attn2", "attention"), ("", "unknown"),
])
def test_op_name_gives_its_class(op: str, expected: str) -> None:
    assert op_class(op) == expected


def test_missing_backends_are_reported_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "installed", lambda name: name == "ck")
    found = route_rewrite("grouped_gemm", "amd", "triton")
    assert (found.backends, found.missing) == (("ck",), ("flydsl", "asm"))
    assert route_rewrite("rmsnorm", "amd", "triton").missing == ("flydsl", "tilelang")
    assert route_rewrite("mla", "amd", "triton").missing == ("tilelang",)


def test_backends_are_ordered_by_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "installed", lambda name: True)
    assert route_rewrite("softmax", "nvidia", "triton").backends == (
        "triton", "tilelang", "cutedsl", "cuda")
    assert route_rewrite("matmul", "cpu", "c").backends == ("c",)
