"""Softmax over the rows of a bfloat16 matrix, in four ways; the first is naive.

A program works on BLOCK elements at a time: part of a row, or several whole rows where rows stay in
registers. The number of warps follows from BLOCK and PER_THREAD. With WIDE rows, one row is loaded
while the other is processed. Both fit into a multiprocessor's registers only if part of a row stays
in bfloat16, and its exponentials are computed twice.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def three_pass_kernel(x, out, cols, BLOCK: tl.constexpr, NUM_STAGES: tl.constexpr,
                      LOAD: tl.constexpr, STORE: tl.constexpr):
    x += tl.program_id(0).to(tl.int64) * cols
    out += tl.program_id(0).to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)

    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in tl.range(0, cols, BLOCK, num_stages=NUM_STAGES):
        at = start + lanes
        value = tl.load(x + at, mask=at < cols, other=float("-inf"))
        largest = tl.maximum(largest, value.to(tl.float32))
    peak = tl.max(largest, 0)

    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, cols, BLOCK, num_stages=NUM_STAGES):
        at = start + lanes
        value = tl.load(x + at, mask=at < cols, other=float("-inf"))
        total += tl.exp(value.to(tl.float32) - peak)
    scale = 1.0 / tl.sum(total, 0)

    for start in tl.range(0, cols, BLOCK, num_stages=NUM_STAGES):
        at = start + lanes
        value = tl.load(x + at, mask=at < cols, other=float("-inf"), eviction_policy=LOAD)
        tl.store(out + at, tl.exp(value.to(tl.float32) - peak) * scale, mask=at < cols,
                 cache_modifier=STORE)


@triton.jit
def online_kernel(x, out, cols, BLOCK: tl.constexpr, NUM_STAGES: tl.constexpr,
                  LOAD: tl.constexpr, STORE: tl.constexpr):
    x += tl.program_id(0).to(tl.int64) * cols
    out += tl.program_id(0).to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)

    peak = -3.4e38  # finite: a row may begin with -inf
    total = 0.0
    for start in tl.range(0, cols, BLOCK, num_stages=NUM_STAGES):
        at = start + lanes
        value = tl.load(x + at, mask=at < cols, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(value, 0))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(value - higher), 0)
        peak = higher
    scale = 1.0 / total

    for start in tl.range(0, cols, BLOCK, num_stages=NUM_STAGES):
        at = start + lanes
        value = tl.load(x + at, mask=at < cols, other=float("-inf"), eviction_policy=LOAD)
        tl.store(out + at, tl.exp(value.to(tl.float32) - peak) * scale, mask=at < cols,
                 cache_modifier=STORE)


@triton.jit
def wide(value, FENCE: tl.constexpr):
    """Widen what was read; past the FENCE the compiler knows of no earlier time that it was."""
    if FENCE:
        value = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [value], dtype=value.dtype,
                                          is_pure=False, pack=2)
    return value.to(tl.float32)


@triton.jit
def at_once(x, out, first, rows, cols, ROWS: tl.constexpr, WIDTH: tl.constexpr,
            EVEN: tl.constexpr, NARROW: tl.constexpr, FENCE: tl.constexpr, LOAD: tl.constexpr,
            STORE: tl.constexpr):
    """Softmax of ROWS rows from the first on, each of them read once; EVEN needs no mask."""
    row = first + tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, WIDTH)[None, :]
    at = row.to(tl.int64) * cols + lane
    if EVEN:
        value = tl.load(x + at, eviction_policy=LOAD)
    else:
        inside = (row < rows) & (lane < cols)
        value = tl.load(x + at, mask=inside, other=float("-inf"), eviction_policy=LOAD)
    peak = tl.max(wide(value, FENCE), 1, keep_dims=True)
    power = tl.exp(wide(value, FENCE) - peak)
    total = tl.sum(power, 1, keep_dims=True)
    if NARROW:
        result = tl.exp(wide(value, FENCE) - (peak + tl.log(total)))
    else:
        result = power * (1.0 / total)
    if EVEN:
        tl.store(out + at, result, cache_modifier=STORE)
    else:
        tl.store(out + at, result, mask=inside, cache_modifier=STORE)


@triton.jit
def in_halves(x, out, row, cols, WIDTH: tl.constexpr, EVEN: tl.constexpr, FENCE: tl.constexpr,
              LOAD: tl.constexpr, STORE: tl.constexpr):
    """Softmax of one row, more than half as long as WIDTH: its end alone stays as it was read."""
    left = tl.arange(0, WIDTH // 2)
    right = WIDTH // 2 + left
    x += tl.cast(row, tl.int64) * cols
    out += tl.cast(row, tl.int64) * cols
    begin = tl.load(x + left, eviction_policy=LOAD)
    if EVEN:
        end = tl.load(x + right, eviction_policy=LOAD)
    else:
        end = tl.load(x + right, mask=right < cols, other=float("-inf"), eviction_policy=LOAD)
    peak = tl.maximum(tl.max(wide(begin, FENCE), 0), tl.max(wide(end, FENCE), 0))
    total = tl.sum(tl.exp(wide(end, FENCE) - peak), 0)
    power = tl.exp(wide(begin, FENCE) - peak)
    total += tl.sum(power, 0)
    tl.store(out + left, power * (1.0 / total), cache_modifier=STORE)
    result = tl.exp(wide(end, FENCE) - (peak + tl.log(total)))
    if EVEN:
        tl.store(out + right, result, cache_modifier=STORE)
    else:
        tl.store(out + right, result, mask=right < cols, cache_modifier=STORE)


@triton.jit
def in_registers(x, out, first, rows, cols, ROWS: tl.constexpr, WIDTH: tl.constexpr,
                 EVEN: tl.constexpr, NARROW: tl.constexpr, FENCE: tl.constexpr,
                 LOAD: tl.constexpr, STORE: tl.constexpr):
    if NARROW == 1:
        in_halves(x, out, first, cols, WIDTH, EVEN, FENCE, LOAD, STORE)
    else:
        at_once(x, out, first, rows, cols, ROWS, WIDTH, EVEN, NARROW == 2, FENCE, LOAD, STORE)


@triton.jit
def whole_kernel(x, out, rows, cols, ROWS: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr,
                 NARROW: tl.constexpr, FENCE: tl.constexpr, LOAD: tl.constexpr,
                 STORE: tl.constexpr):
    in_registers(x, out, tl.program_id(0) * ROWS, rows, cols, ROWS, WIDTH, EVEN, NARROW, FENCE,
                 LOAD, STORE)


@triton.jit
def persistent_kernel(x, out, rows, cols, ROWS: tl.constexpr, WIDTH: tl.constexpr,
                      EVEN: tl.constexpr, NARROW: tl.constexpr, FENCE: tl.constexpr,
                      NUM_STAGES: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS,
                          num_stages=NUM_STAGES):
        in_registers(x, out, first, rows, cols, ROWS, WIDTH, EVEN, NARROW, FENCE, LOAD, STORE)


def three_pass(x, out, kernel=three_pass_kernel):
    rows, cols = x.shape
    kernel[(rows,)](x, out, cols, BLOCK=BLOCK, NUM_STAGES=NUM_STAGES,
                    num_warps=warps(BLOCK, PER_THREAD), **CACHE)


def online(x, out):
    three_pass(x, out, online_kernel)


def whole(x, out):
    rows, cols = x.shape
    tile = tile_of(rows, cols)
    whole_kernel[(-(-rows // tile["ROWS"]),)](x, out, rows, cols, **tile, **CACHE)


def persistent(x, out):
    rows, cols = x.shape
    tile = tile_of(rows, cols)
    programs = processors(x) * max(1, THREADS // (32 * tile["num_warps"]))
    persistent_kernel[(min(-(-rows // tile["ROWS"]), programs),)](
        x, out, rows, cols, NUM_STAGES=NUM_STAGES, **tile, **CACHE)


def tile_of(rows, cols):
    width = 1 << (cols - 1).bit_length()  # a call of Triton's own takes longer than a launch
    height = max(1, BLOCK // width)
    narrow = NARROW if width >= WIDE else 0
    return {"ROWS": height, "WIDTH": width, "EVEN": cols == width and rows % height == 0,
            "NARROW": narrow, "FENCE": narrow > 0 and COMPILED,
            "num_warps": warps(height * width, WIDE_PER_THREAD if width >= WIDE else PER_THREAD)}


def warps(elements, per_thread):
    return max(1, min(32, elements // (32 * per_thread)))


def processors(tensor):
    try:
        return torch.cuda.get_device_properties(tensor.device).multi_processor_count
    except (AssertionError, RuntimeError, ValueError):
        return 1  # interpreted


WIDE = 32768
COMPILED = isinstance(whole_kernel, triton.JITFunction)

plain = {"LOAD": "", "STORE": ""}
streaming = {"LOAD": "evict_first", "STORE": ".cs"}

VARIANT = three_pass  # kopt: knob VARIANT in [three_pass, online, whole, persistent]
BLOCK = 128  # kopt: knob BLOCK in [128, 256, 512, 1024, 2048, 4096, 8192] elements at a time
PER_THREAD = 1  # kopt: knob PER_THREAD in [1, 2, 4, 8, 16, 32, 64] of them for a thread
NUM_STAGES = 1  # kopt: knob NUM_STAGES in [1, 2, 3, 4] steps of a loop in flight; not for whole
THREADS = 512  # kopt: knob THREADS in [512, 1024, 2048] of persistent on a multiprocessor
CACHE = plain  # kopt: knob CACHE in [plain, streaming] what is touched for the last time

NARROW = 0  # kopt: knob NARROW in [0, 1, 2] halves of a WIDE row that stay as they were read
WIDE_PER_THREAD = 32  # kopt: knob WIDE_PER_THREAD in [32, 64, 128] elements of such a row

# A block has at most 32 warps of 32 threads.
# kopt: require BLOCK // PER_THREAD <= 32 * 32
# THREADS does nothing elsewhere.
# kopt: require THREADS == 512 or VARIANT == "persistent"
# Nor do these two.
# kopt: require NARROW == 0 or VARIANT == "whole" or VARIANT == "persistent"
# kopt: require WIDE_PER_THREAD == 32 or VARIANT == "whole" or VARIANT == "persistent"


def softmax(x, out):
    VARIANT(x, out)
