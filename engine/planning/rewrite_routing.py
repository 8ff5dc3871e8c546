"""Choose the rewrite backends for an op, by its class and by what is installed for the device."""

from __future__ import annotations

import importlib.util
import re
import shutil
from typing import Literal

import msgspec

from harness.devices.device import DeviceKind
from harness.tasks.target import Language

OpClass = Literal["linear-attention", "attention", "moe", "gemm", "norm", "unknown"]
_CLASSES: tuple[tuple[OpClass, frozenset[str], tuple[str, ...]], ...] = (
    ("linear-attention", frozenset({"gdn", "gdr", "recurrent", "mamba"}),
     ("linear attn", "linear attention", "gated delta")),
    ("attention", frozenset({"attention", "attn", "flash", "fmha", "mla", "sdpa", "mha"}), ()),
    ("moe", frozenset({"moe", "expert", "experts", "grouped"}), ("fused moe",)),
    ("gemm", frozenset({"gemm", "matmul", "mm", "linear", "bmm", "hgemm"}), ()),
    ("norm", frozenset({"norm", "rmsnorm", "layernorm", "softmax", "elementwise", "quant",
                        "quantize", "activation", "gelu", "silu", "add"}), ()),
)
_AMD: dict[OpClass, tuple[str, ...]] = {
    "linear-attention": ("flydsl",), "attention": ("tilelang",), "moe": ("flydsl", "ck", "asm"),
    "gemm": ("flydsl", "ck", "asm"), "norm": ("flydsl", "tilelang"),
    "unknown": ("flydsl", "tilelang")}
_NVIDIA = ("triton", "tilelang", "cutedsl", "cuda")
_MODULES = {"flydsl": "flydsl", "tilelang": "tilelang", "cutedsl": "cutlass", "triton": "triton"}
_PROGRAMS = {"ck": "hipcc", "asm": "hipcc", "cuda": "nvcc", "c": "cc"}


class RewriteRoute(msgspec.Struct, frozen=True, kw_only=True):
    """Rewrite backends in the order to try them; `missing` ones are not installed."""

    op_class: OpClass
    backends: tuple[str, ...]
    missing: tuple[str, ...] = ()


def op_class(op: str) -> OpClass:
    """Return the class of an op from its words: `linear_attn` is linear attention, not attention.
    """
    words = [w for w in re.split(r"[^a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", op).lower()) if w]
    text = " ".join(words)
    for name, single, phrases in _CLASSES:
        if single & set(words) or any(phrase in text for phrase in phrases):
            return name
    return "unknown"


def route(op: str, device: DeviceKind, language: Language) -> RewriteRoute:
    """Return the rewrite backends for an op on a kind of device."""
    kind = op_class(op)
    if device == "cpu":
        backends: tuple[str, ...] = ("c",) if language == "c" else ("triton",)
    else:
        backends = _AMD[kind] if device == "amd" else _NVIDIA
    available = tuple(name for name in backends if installed(name))
    return RewriteRoute(op_class=kind, backends=available,
                        missing=tuple(name for name in backends if name not in available))


def installed(backend: str) -> bool:
    """Return whether kernels in a backend's language can be built on this machine."""
    if backend in _MODULES:
        return importlib.util.find_spec(_MODULES[backend]) is not None
    return shutil.which(_PROGRAMS[backend]) is not None
