"""One step of a gated delta rule, as when text is generated: the state is read and written once."""

import torch
import triton
import triton.language as tl

DELTA_STEP_COLUMNS = 32  # kopt: knob DELTA_STEP_COLUMNS in [8, 16, 32, 64, 128] of a program
DELTA_STEP_WARPS = 4  # kopt: knob DELTA_STEP_WARPS in [1, 2, 4, 8] warps of a program


@triton.jit
def delta_step_kernel(q, k, v, decay, beta, state, y, after, width, depth, scale,
                      LOG: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """COLUMNS columns of a head's state [depth, width]; they do not depend on each other."""
    blocks = tl.cdiv(width, COLUMNS)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    row = tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < depth)[:, None] & (column < width)[None, :]
    at = head * depth * width + row[:, None] * width + column[None, :]
    memory = tl.load(state + at, mask=inside, other=0.0).to(tl.float32)
    key = tl.load(k + head * depth + row, mask=row < depth, other=0.0).to(tl.float32)
    query = tl.load(q + head * depth + row, mask=row < depth, other=0.0).to(tl.float32) * scale
    value = tl.load(v + head * width + column, mask=column < width, other=0.0).to(tl.float32)
    kept = tl.load(decay + head).to(tl.float32)
    memory *= tl.exp(kept) if LOG else kept
    change = (value - tl.sum(memory * key[:, None], 0)) * tl.load(beta + head).to(tl.float32)
    memory += key[:, None] * change[None, :]
    tl.store(after + at, memory, mask=inside)
    result = tl.sum(memory * query[:, None], 0)
    tl.store(y + head * width + column, result, mask=column < width)


def delta_step(q, k, v, decay, beta, state, scale=1.0, log=True):
    """q, k [..., d], v [..., e], decay and beta [...], state [..., d, e]; returns y and the state.

    h = h exp(decay); h += k (beta (v - kᵀh))ᵀ; y = scale qᵀh. log=False: decay is the factor.
    """
    q, k, v, decay, beta, state = (t.contiguous() for t in (q, k, v, decay, beta, state))
    depth, width = state.shape[-2:]
    y, after = torch.empty_like(v), torch.empty_like(state)
    if not y.numel():
        return y, after
    columns = min(DELTA_STEP_COLUMNS, 1 << (width - 1).bit_length())
    delta_step_kernel[(decay.numel() * -(-width // columns),)](
        q, k, v, decay, beta, state, y, after, width, depth, scale, LOG=log,
        ROWS=1 << (depth - 1).bit_length(), COLUMNS=columns, num_warps=DELTA_STEP_WARPS)
    return y, after
