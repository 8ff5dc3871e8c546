"""The forms of a PyTorch module that a rewrite has to beat: compiled, or with library calls.

Library signatures come from the sources that knowledge/api_names.yaml states. A form fails with a
reason where the library computes something else or replaces nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

COMPILED = "torch.compile"
SHORT_S = 1800.0
"""A campaign with a budget of fewer seconds does not measure forms that take minutes to compile:
max-autotune, and libraries that compile their kernels at the first call."""
_APPENDED = """

import torch


class ModelNew(Model):
"""
_COMPILED = """\
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.forward = torch.compile(super().forward{mode})
"""
_BACKEND = """\
    def forward(self, *args, **kwargs):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        with sdpa_kernel(SDPBackend.{backend}):
            return super().forward(*args, **kwargs)
"""
_REPLACED = """\
    def forward(self, *args, **kwargs):
        import {library}
        from torch.overrides import TorchFunctionMode
        calls = []

        def replacement({signature}):
            if {refused}:
                raise NotImplementedError("{library} does not support this call")
{body}

        class Replaced(TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                if function is not torch.nn.functional.{function}:
                    return function(*args, **(kwargs or {{}}))
                calls.append(function)
                return replacement(*args, **(kwargs or {{}}))

        with Replaced():
            result = super().forward(*args, **kwargs)
        if not calls:
            raise NotImplementedError("forward does not call {function}")
        return result
"""
_ATTENTION = dict(
    function="scaled_dot_product_attention",
    signature="query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,\n"
              "                        enable_gqa=False",
    # both align a causal mask to the last key, PyTorch to the first
    refused="attn_mask is not None or dropout_p or query.dim() != 4 or (\n"
            "                    is_causal and query.shape[2] != key.shape[2])")
_RMS_NORM = dict(
    function="rms_norm", signature="input, normalized_shape, weight=None, eps=None",
    refused="weight is None or len(normalized_shape) != 1")
_ROWS = """\
            eps = torch.finfo(input.dtype).eps if eps is None else eps
            rows = input.reshape(-1, input.shape[-1])
            return {call}(rows, weight, eps).view(input.shape)"""
_FLASHINFER_ATTENTION = """\
            # all heads of the batch as those of one request, whose rows are queries
            result = flashinfer.single_prefill_with_kv_cache(
                query.flatten(0, 1).transpose(0, 1), key.flatten(0, 1), value.flatten(0, 1),
                causal=is_causal, kv_layout="HND", sm_scale=scale)
            return result.transpose(0, 1).unflatten(0, query.shape[:2])"""
_AITER_ATTENTION = """\
            result = aiter.flash_attn_func(
                query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
                softmax_scale=scale, causal=is_causal)
            return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)"""


@dataclass(frozen=True, kw_only=True)
class ReferenceForm:
    """A form of a module that verdicts are compared with; `key` is its candidate in the journal.

    It is measured if the module's source matches `pattern`, the device's kind is among `devices`,
    () for all, and `library` is installed.
    """

    key: str
    name: str
    body: str
    devices: tuple[str, ...] = ()
    pattern: str = ""
    library: str = ""
    is_slow: bool = False

    def source(self, text: bytes) -> bytes:
        """Return a module's source plus the class ModelNew: its class Model in this form."""
        return text.rstrip() + (_APPENDED + self.body).encode()


def _library(library: str, device: str, op: str, parts: dict[str, str],
             body: str) -> ReferenceForm:
    return ReferenceForm(
        key=f"{library}-{op}", name=f"{library} {op}", devices=(device,), library=library,
        pattern=rf"\b{parts['function']}\b" + (r"|\bnn\.RMSNorm\b" if op == "norm" else ""),
        body=_REPLACED.format(library=library, body=body, **parts), is_slow=True)


FORMS = (
    ReferenceForm(key="compiled", name=COMPILED, body=_COMPILED.format(mode="")),
    # not "max-autotune": its CUDA graphs write each result to the same memory, where the next call
    # overwrites it before it is checked, and cannot be captured into the graphs that time a call
    ReferenceForm(key="autotuned", name="torch.compile max-autotune", devices=("nvidia", "amd"),
                  body=_COMPILED.format(mode=', mode="max-autotune-no-cudagraphs"'), is_slow=True),
    ReferenceForm(key="cudnn", name="cuDNN attention", devices=("nvidia",),
                  body=_BACKEND.format(backend="CUDNN_ATTENTION"),
                  pattern=r"\bscaled_dot_product_attention\b"),
    _library("flashinfer", "nvidia", "attention", _ATTENTION, _FLASHINFER_ATTENTION),
    _library("flashinfer", "nvidia", "norm", _RMS_NORM, _ROWS.format(call="flashinfer.rmsnorm")),
    _library("aiter", "amd", "attention", _ATTENTION, _AITER_ATTENTION),
    _library("aiter", "amd", "norm", _RMS_NORM, _ROWS.format(call="aiter.rms_norm")),
)


def forms(text: bytes, device_kind: str, installed: Callable[[str], bool],
          budget_s: float | None = None) -> list[ReferenceForm]:
    """Return the forms of a module to measure; with a budget under SHORT_S, no slow ones."""
    source = text.decode(errors="replace")
    return [form for form in FORMS if (not form.devices or device_kind in form.devices)
            and re.search(form.pattern, source)
            and not (form.is_slow and budget_s is not None and budget_s < SHORT_S)
            and (not form.library or installed(form.library))]
