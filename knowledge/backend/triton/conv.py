"""Dense convolution in 1 to 3 dimensions as one product: filters times the patches of the input.

Nothing is unrolled in memory: a step gathers its part of the patches. What is channels-last stays
so. Float32 is multiplied in three TF32 products, or in one as cuDNN may: by PyTorch's flags it is
allowed to, and by its own rules it does for some shapes.
"""

import torch
import triton
import triton.language as tl

CONV_FILTERS = 128  # kopt: knob CONV_FILTERS in [32, 64, 128, 256] filters of a tile
CONV_PLACES = 128  # kopt: knob CONV_PLACES in [32, 64, 128, 256] results of each filter in a tile
CONV_DEPTH = 64  # kopt: knob CONV_DEPTH in [32, 64, 128] values of two bytes in a step
CONV_GROUP = 8  # kopt: knob CONV_GROUP in [1, 4, 8, 16] tiles in a row that share filters
CONV_WARPS = 8  # kopt: knob CONV_WARPS in [4, 8] warps of a tile
CONV_STAGES = 3  # kopt: knob CONV_STAGES in [2, 3, 4] steps in flight; fewer if memory is short
CONV_TF32 = 3  # kopt: knob CONV_TF32 in [3, 1] TF32 products for a float32 one; 1: errors of 2^-12

# A thread keeps its part of the sums in its 255 registers.
# kopt: require CONV_FILTERS * CONV_PLACES <= CONV_WARPS * 32 * 128


@triton.jit
def conv_rounded(x):
    """Round to TF32 to the nearest; a matrix unit cuts off what is left."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


@triton.jit
def conv_kernel(
        # kopt: operands
        x, weight, bias, y, filters, places, xn, xc, xd, xh, xw, D, H, W, OD, OH, OW,
        BIAS: tl.constexpr, LAST: tl.constexpr, FLAT: tl.constexpr, PADDED: tl.constexpr,
        C: tl.constexpr,
        KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SD: tl.constexpr, SH: tl.constexpr,
        SW: tl.constexpr, PD: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, DD: tl.constexpr,
        DH: tl.constexpr, DW: tl.constexpr, PRECISION: tl.constexpr, FILTERS: tl.constexpr,
        PLACES: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr):
    """A tile of results: some filters at some places (n, d, h, w); LAST: channels are innermost.

    weight is [filters, kd, kh, kw, channels].
    """
    K: tl.constexpr = C * KD * KH * KW
    down = tl.cdiv(filters, FILTERS)
    across = tl.cdiv(places, PLACES)
    first = tl.program_id(0) // (GROUP * down) * GROUP
    width = min(across - first, GROUP)
    column = first + tl.program_id(0) % (GROUP * down) % width
    row = tl.program_id(0) % (GROUP * down) // width
    own = (row * FILTERS + tl.arange(0, FILTERS))[:, None]
    place = column * PLACES + tl.arange(0, PLACES)
    each = place % (OD * OH * OW)
    batch = (place // (OD * OH * OW)).to(tl.int64)
    d, h, w = each // (OH * OW) * SD - PD, each // OW % OH * SH - PH, each % OW * SW - PW
    x += (batch * xn + d * xd + h * xh + w * xw)[None, :]
    value = tl.zeros([FILTERS, PLACES], tl.float32)
    if FLAT:  # few channels: a step has values of several taps
        for start in range(0, K, DEPTH):
            k = start + tl.arange(0, DEPTH)
            c, tap = k % C, k // C
            i, j, m = tap // (KH * KW) * DD, tap // KW % KH * DH, tap % KW * DW
            there = (k < K)[:, None] & (place < places)[None, :]
            if PADDED:
                a, b, g = (d[None, :] + i[:, None], h[None, :] + j[:, None],
                           w[None, :] + m[:, None])
                there &= (a >= 0) & (a < D) & (b >= 0) & (b < H) & (g >= 0) & (g < W)
            offset = c.to(tl.int64) * xc + i * xd + j * xh + m * xw
            patch = tl.load(x + offset[:, None], mask=there, other=0.0)
            taps = tl.load(weight + own * K + k[None, :], other=0.0,
                           mask=(own < filters) & (k < K)[None, :])
            if PRECISION == "tf32":
                taps, patch = conv_rounded(taps), conv_rounded(patch)
            value = tl.dot(taps, patch, value, input_precision=PRECISION)
    else:  # channels of one tap, whose places lie inside or outside together
        PARTS: tl.constexpr = (C + DEPTH - 1) // DEPTH
        for step in range(0, KD * KH * KW * PARTS):
            tap = step // PARTS
            c = step % PARTS * DEPTH + tl.arange(0, DEPTH)
            i, j, m = tap // (KH * KW) * DD, tap // KW % KH * DH, tap % KW * DW
            here = place < places
            if PADDED:
                here &= ((d + i >= 0) & (d + i < D) & (h + j >= 0) & (h + j < H) & (w + m >= 0)
                         & (w + m < W))
            there, known = here[None, :], own < filters
            if C % DEPTH:
                there &= (c < C)[:, None]
                known &= (c < C)[None, :]
            patch = tl.load(x + i * xd + j * xh + m * xw + c[:, None].to(tl.int64) * xc,
                            mask=there, other=0.0)
            taps = tl.load(weight + own * K + tap * C + c[None, :], mask=known, other=0.0)
            if PRECISION == "tf32":
                taps, patch = conv_rounded(taps), conv_rounded(patch)
            value = tl.dot(taps, patch, value, input_precision=PRECISION)
    if BIAS:
        value += tl.load(bias + own, mask=own < filters, other=0.0).to(tl.float32)
    inside = (own < filters) & (place < places)[None, :]
    at = (batch * filters * (OD * OH * OW) + each)[None, :] + own.to(tl.int64) * (OD * OH * OW)
    # kopt: epilogue value
    if LAST:
        at = place.to(tl.int64)[None, :] * filters + own
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)


def conv_device(x):
    """Return the backend and the shared memory of a block."""
    try:
        card = torch.cuda.get_device_properties(x.device)
        return (triton.runtime.driver.active.get_current_target().backend,
                getattr(card, "shared_memory_per_block_optin", 65536))
    except (AssertionError, RuntimeError, ValueError):
        return "", 65536  # interpreted


def conv(
        # kopt: operands
        x, weight, bias=None, stride=1, padding=0, dilation=1):
    """x [n, channels, (d, h,) w]; weight [filters, channels, (kd, kh,) kw]; padding by zeros."""
    dims = weight.dim() - 2

    def three(value, fill):
        sizes = [value] * dims if isinstance(value, int) else list(value)
        return [fill] * (3 - dims) + (sizes * dims if len(sizes) == 1 else sizes)

    sizes, kernel = three(x.shape[2:], 1), three(weight.shape[2:], 1)
    step, spread = three(stride, 1), three(dilation, 1)
    if isinstance(padding, str):
        both = [d * (k - 1) * (padding == "same") for k, d in zip(kernel, spread, strict=True)]
    else:
        both = [2 * each for each in three(padding, 0)]
    pad = [each // 2 for each in both]
    results = [(size + p - d * (k - 1) - 1) // s + 1
               for size, k, s, p, d in zip(sizes, kernel, step, both, spread, strict=True)]
    layout = {1: torch.contiguous_format, 2: torch.channels_last, 3: torch.channels_last_3d}[dims]
    last = dims > 1 and x.stride(1) == 1 and x.is_contiguous(memory_format=layout)
    if not last:
        layout, x = torch.contiguous_format, x.contiguous()
    filters, channels = weight.shape[:2]
    weight = weight.movedim(1, -1).contiguous()
    y = torch.empty(x.shape[0], filters, *results[3 - dims:], dtype=x.dtype, device=x.device,
                    memory_format=layout)
    if not y.numel():
        return y
    backend, shared = conv_device(x)
    places = y.numel() // filters
    rows = min(CONV_FILTERS, max(16, 1 << (filters - 1).bit_length()))
    columns = min(CONV_PLACES, max(16, 1 << (places - 1).bit_length()))
    flat = channels < 16
    terms = weight.numel() // filters if flat else channels
    depth = min(CONV_DEPTH * 2 // x.element_size(), max(16, 1 << (terms - 1).bit_length()))
    stages = min(CONV_STAGES, max(1, shared // ((rows + columns) * depth * x.element_size())))
    single = x.dtype == torch.float32 and backend == "cuda"
    conv_kernel[(-(-filters // rows) * -(-places // columns),)](
        # kopt: operands
        x, weight, x if bias is None else bias, y, filters, places, *x.stride()[:2],
        *[0] * (3 - dims), *x.stride()[2:], *sizes, *results, bias is not None, last, flat,
        any(both), channels, *kernel, *step, *pad, *spread,
        PRECISION="ieee" if not single else "tf32" if CONV_TF32 == 1 else "tf32x3",
        FILTERS=rows, PLACES=columns, DEPTH=depth, GROUP=CONV_GROUP, num_warps=CONV_WARPS,
        num_stages=stages)
    return y
