"""Runs modules in forms that call a library; a stand-in with the same contract replaces each call.

The contracts (layouts, causal masks aligned to the last key, grouped heads) are those of the
sources that knowledge/api_names.yaml states; the libraries themselves need a GPU. For each form
and module it prints both names and `same` (equal results), or the last word of the reason why the
form does not apply.
"""

from __future__ import annotations

import sys
from types import ModuleType

import torch

from engine.verify.reference_forms import FORMS

MODULE = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.RMSNorm(16, eps=1e-3)
        torch.manual_seed(1)
        self.layer.weight.data.uniform_(0.5, 2)

    def forward(self, q, k, v):
        return {}
"""
CASES = {
    "attention": "F.scaled_dot_product_attention(q, k, v)",
    "causal": "F.scaled_dot_product_attention(q, k[:, :, :5], v[:, :, :5], is_causal=True)",
    "grouped": "F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], scale=0.3, enable_gqa=True)",
    "shifted": "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    "masked": "F.scaled_dot_product_attention(q, k, v, attn_mask=q[0, 0, :, :1] > 0)",
    "norm": "self.layer(q.transpose(1, 2))",
    "unscaled": "F.rms_norm(q, (16,))",
    "other": "q.relu()"}


def attended(q, k, v, scale, causal):
    """Return attention of q, k, v [heads, rows, values]; a key head serves adjacent query heads."""
    k, v = (x.repeat_interleave(q.shape[0] // k.shape[0], 0) for x in (k, v))
    scores = q @ k.transpose(1, 2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        last = k.shape[1] - q.shape[1]
        scores += torch.full_like(scores[0], float("-inf")).triu(last + 1)
    return scores.softmax(-1) @ v


def single_prefill_with_kv_cache(q, k, v, *, causal=False, kv_layout="NHD", sm_scale=None):
    assert kv_layout == "HND" and k.dim() == 3, "keys are [heads, rows, values]"
    return attended(q.transpose(0, 1), k, v, sm_scale, causal).transpose(0, 1).contiguous()


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    return torch.stack([attended(*(x.transpose(0, 1) for x in each), softmax_scale,
                                 causal).transpose(0, 1) for each in zip(q, k, v, strict=True)]),


def rms_norm(input, weight, epsilon):
    assert input.dim() == 2
    return input / (input.square().mean(-1, True) + epsilon).sqrt() * weight


for name, parts in (("flashinfer", {"single_prefill_with_kv_cache": single_prefill_with_kv_cache,
                                    "rmsnorm": rms_norm}),
                    ("aiter", {"flash_attn_func": flash_attn_func, "rms_norm": rms_norm})):
    sys.modules[name] = ModuleType(name)
    vars(sys.modules[name]).update(parts)
for form in FORMS:
    for case, expression in CASES.items() if form.library else ():
        space: dict = {}
        exec(form.source(MODULE.format(expression).encode()).decode(), space)
        torch.manual_seed(0)
        q, k, v = torch.randn(2, 4, 5, 16), torch.randn(2, 4, 7, 16), torch.randn(2, 4, 7, 16)
        try:
            result = space["ModelNew"]()(q, k, v)
        except NotImplementedError as reason:
            print(form.key, case, str(reason).split()[-1])
            continue
        torch.testing.assert_close(result, space["Model"]()(q, k, v))
        print(form.key, case, "same")
