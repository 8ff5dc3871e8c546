"""Paged attention in float64: gather the pages, then compute plain attention."""

import torch


def paged_attention(query, keys, values, block_tables, starts, context):
    seqs, mtp, heads, head_size = query.shape
    keys, values = (gathered(cache, block_tables, context, heads) for cache in (keys, values))
    scores = torch.einsum("sthd,shpd->shtp", query, keys) * head_size ** -0.5
    position = torch.arange(context, device=query.device)
    last = context - mtp + torch.arange(mtp, device=query.device)
    visible = (position[None, None, :] >= starts.long()[:, None, None]) \
        & (position[None, None, :] <= last[None, :, None])
    scores = scores.masked_fill(~visible[:, None], float("-inf"))
    return torch.einsum("shtp,shpd->sthd", torch.softmax(scores, dim=-1), values)


def gathered(cache, block_tables, context, heads):
    """Return [sequence][head][position][head_size]."""
    pages = cache[block_tables.long()]  # [sequence][block][kv_head][block_size][head_size]
    rows = pages.transpose(1, 2).flatten(2, 3)[:, :, :context]
    return rows.repeat_interleave(heads // cache.shape[1], dim=1)
