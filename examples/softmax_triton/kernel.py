"""Softmax over the rows of a bfloat16 matrix: five ways to read them, of which the first is naive.

BLOCK elements are worked on at a time: a part of a row, or, where a row stays in registers, as
many rows as they are long. Warps follow from that and PER_THREAD. A row that fills the registers
of a multiprocessor leaves no room for a second one to be loaded meanwhile: it may be read twice, or
kept as it was read, in half of them.
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
def in_registers(x, out, first, rows, cols, ROWS: tl.constexpr, WIDTH: tl.constexpr,
                 EVEN: tl.constexpr, FENCE: tl.constexpr, LOAD: tl.constexpr,
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
    if FENCE:
        result = tl.exp(wide(value, FENCE) - (peak + tl.log(total)))
    else:
        result = power * (1.0 / total)
    if EVEN:
        tl.store(out + at, result, cache_modifier=STORE)
    else:
        tl.store(out + at, result, mask=inside, cache_modifier=STORE)


@triton.jit
def whole_kernel(x, out, rows, cols, ROWS: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr,
                 FENCE: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr):
    in_registers(x, out, tl.program_id(0) * ROWS, rows, cols, ROWS, WIDTH, EVEN, FENCE, LOAD, STORE)


@triton.jit
def persistent_kernel(x, out, rows, cols, ROWS: tl.constexpr, WIDTH: tl.constexpr,
                      EVEN: tl.constexpr, FENCE: tl.constexpr, NUM_STAGES: tl.constexpr,
                      LOAD: tl.constexpr, STORE: tl.constexpr):
    for first in tl.range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS,
                          num_stages=NUM_STAGES):
        in_registers(x, out, first, rows, cols, ROWS, WIDTH, EVEN, FENCE, LOAD, STORE)


@triton.jit
def twice_kernel(x, out, rows, cols, LANES: tl.constexpr, LOAD: tl.constexpr,
                 STORE: tl.constexpr):
    """Each of LANES has a peak and a total of its own until the row's end, and reads 8 elements at
    a time; the second time they are in the cache, as long as few rows are under way.
    """
    lanes = tl.arange(0, LANES)[:, None] * 8 + tl.arange(0, 8)[None, :]
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        first = tl.cast(row, tl.int64) * cols
        peak = tl.full((LANES,), -3.4e38, tl.float32)
        total = tl.zeros((LANES,), tl.float32)
        for start in tl.range(0, cols, 8 * LANES):
            at = start + lanes
            value = tl.load(x + first + at, mask=at < cols, other=float("-inf")).to(tl.float32)
            higher = tl.maximum(peak, tl.max(value, 1))
            total = total * tl.exp(peak - higher) + tl.sum(tl.exp(value - higher[:, None]), 1)
            peak = higher
        highest = tl.max(peak, 0)
        scale = 1.0 / tl.sum(total * tl.exp(peak - highest), 0)

        for start in tl.range(0, cols, 8 * LANES):
            at = start + lanes
            value = tl.load(x + first + at, mask=at < cols, other=float("-inf"),
                            eviction_policy=LOAD)
            tl.store(out + first + at, tl.exp(value.to(tl.float32) - highest) * scale,
                     mask=at < cols, cache_modifier=STORE)


def three_pass(x, out, kernel=three_pass_kernel):
    rows, cols = x.shape
    kernel[(rows,)](x, out, cols, BLOCK=BLOCK, NUM_STAGES=NUM_STAGES, num_warps=warps(BLOCK),
                    **CACHE)


def online(x, out):
    three_pass(x, out, online_kernel)


def whole(x, out):
    rows, cols = x.shape
    tile = tile_of(rows, cols)
    whole_kernel[(triton.cdiv(rows, tile["ROWS"]),)](x, out, rows, cols, **tile, **CACHE)


def persistent(x, out):
    rows, cols = x.shape
    tile = tile_of(rows, cols)
    programs = processors(x) * max(1, THREADS // (32 * tile["num_warps"]))
    persistent_kernel[(min(triton.cdiv(rows, tile["ROWS"]), programs),)](
        x, out, rows, cols, NUM_STAGES=NUM_STAGES, **tile, **CACHE)


def twice(x, out):
    rows, cols = x.shape
    twice_kernel[(min(rows, processors(x) * PROGRAMS),)](
        x, out, rows, cols, LANES=WIDE_BLOCK // 8, num_warps=16, **CACHE)


def warps(elements):
    return max(1, min(32, elements // (32 * PER_THREAD)))


def tile_of(rows, cols):
    width = triton.next_power_of_2(cols)
    height = max(1, BLOCK // width)
    compiled = isinstance(whole_kernel, triton.JITFunction)
    return {"ROWS": height, "WIDTH": width, "EVEN": cols == width and rows % height == 0,
            "FENCE": bool(NARROW and compiled), "num_warps": warps(height * width)}


def processors(tensor):
    try:
        return torch.cuda.get_device_properties(tensor.device).multi_processor_count
    except (AssertionError, RuntimeError, ValueError):
        return 1  # interpreted


plain = {"LOAD": "", "STORE": ""}
streaming = {"LOAD": "evict_first", "STORE": ".cs"}

VARIANT = three_pass  # kopt: knob VARIANT in [three_pass, online, whole, persistent]
BLOCK = 128  # kopt: knob BLOCK in [128, 256, 512, 1024, 2048, 4096, 8192] elements at a time
PER_THREAD = 1  # kopt: knob PER_THREAD in [1, 2, 4, 8, 16, 32, 64, 128] of them for a thread
NUM_STAGES = 1  # kopt: knob NUM_STAGES in [1, 2, 3, 4] steps of a loop in flight; not for whole
THREADS = 512  # kopt: knob THREADS in [512, 1024, 2048] of persistent on a multiprocessor
CACHE = plain  # kopt: knob CACHE in [plain, streaming] what is touched for the last time

NARROW = 0  # kopt: knob NARROW in [0, 1] rows in registers stay as they were read; for NVIDIA
WIDE = 65536  # kopt: knob WIDE in [32768, 65536] columns from which a row is read twice
WIDE_BLOCK = 4096  # kopt: knob WIDE_BLOCK in [4096, 8192, 16384] elements at a time of such a row
PROGRAMS = 4  # kopt: knob PROGRAMS in [2, 3, 4] such rows on a multiprocessor

# A block has at most 32 warps of 32 threads.
# kopt: require BLOCK // PER_THREAD <= 32 * 32
# THREADS does nothing elsewhere.
# kopt: require THREADS == 512 or VARIANT == "persistent"
# Nor do these three.
# kopt: require NARROW == 0 or VARIANT == "whole" or VARIANT == "persistent"
# kopt: require WIDE < 65536 or WIDE_BLOCK == 4096
# kopt: require WIDE < 65536 or PROGRAMS == 4


def softmax(x, out):
    (twice if x.shape[1] >= WIDE else VARIANT)(x, out)
