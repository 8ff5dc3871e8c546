"""Honest kernels for a GPU: graphs, joined streams, and features of Triton."""

from __future__ import annotations

from typing import Any

from tests.honest.case import Honest, problems
from tests.honest.variants.variant import Variant


def triton(id: str, title: str, kernel: str, body: str, **fields: Any) -> Variant:
    return Variant(id, Honest(title=title, source=problems.double(body, kernel), gpu=True,
                              problem=problems.DOUBLE, **fields))


def torch(id: str, title: str, body: str, before: str = "", **fields: Any) -> Variant:
    return Variant(id, Honest(title=title, source=problems.mix(body, before), gpu=True,
                              problem=problems.MIX_GPU, **fields))


VARIANTS = [
    triton("persistent", "as many programs as multiprocessors, each with a loop", """

@triton.jit
def persistent(x, out, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
""", """
programs = torch.cuda.get_device_properties(x.device).multi_processor_count
persistent[(programs,)](x, out, x.numel(), BLOCK=1024)
"""),
    triton("inline-ptx", "an instruction in assembly", """

@triton.jit
def with_ptx(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    v = tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=f,f", [v], dtype=tl.float32,
                                  is_pure=True, pack=1)
    tl.store(out + at, v, mask=at < n)
""", "with_ptx[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)"),
    triton("block-pointer", "pointers to blocks", """

@triton.jit
def by_blocks(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK
    here = tl.make_block_ptr(x, (n,), (1,), (at,), (BLOCK,), (0,))
    there = tl.make_block_ptr(out, (n,), (1,), (at,), (BLOCK,), (0,))
    tl.store(there, 2 * tl.load(here, boundary_check=(0,)), boundary_check=(0,))
""", "by_blocks[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)"),
    triton("tensor-descriptor", "descriptors made on the device, for whole 16-byte pieces", """

@triton.jit
def described(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK
    here = tl.make_tensor_descriptor(x, [n], [1], [BLOCK])
    there = tl.make_tensor_descriptor(out, [n], [1], [BLOCK])
    there.store([at], 2 * here.load([at]))


def allocate(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


triton.set_allocator(allocate)
""", """
n = x.numel()
if n % 4:  # such a store writes whole 16 bytes, also beyond the end (triton's issue 11583)
    double_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
else:
    described[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
"""),
    triton("heuristics", "triton.heuristics chooses the block size by the size", """

@triton.heuristics({"BLOCK": lambda args: 1024 if args["n"] > 4096 else 128})
@triton.jit
def by_size(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
""", "by_size[lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)](x, out, x.numel())"),
    triton("atomics", "halves are added by atomics to a cleared output", """

@triton.jit
def added(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.atomic_add(out + at, v, mask=at < n)
    tl.atomic_add(out + at, v, mask=at < n)
""", """
out.zero_()
added[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
"""),
    triton("two-kernels", "a kernel that copies and one that doubles in place", """

@triton.jit
def copied(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)
""", """
grid = (triton.cdiv(x.numel(), 1024),)
copied[grid](x, out, x.numel(), BLOCK=1024)
double_kernel[grid](out, out, x.numel(), BLOCK=1024)
"""),
    triton("streaming", "loads and stores that leave the cache alone", """

@triton.jit
def streaming(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, eviction_policy="evict_first")
    tl.store(out + at, v + v, mask=at < n, cache_modifier=".cs")
""", "streaming[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)"),
    torch("graph-with-copies", "a graph on buffers of its own, unless a graph is being captured",
          """
if torch.cuda.is_current_stream_capturing():
    return torch.relu(x @ w)
key = x.shape, w.shape
if key not in graphs:
    a, b = x.clone(), w.clone()
    torch.relu(a @ b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = torch.relu(a @ b)
    graphs[key] = graph, a, b, y
graph, a, b, y = graphs[key]
a.copy_(x)
b.copy_(w)
graph.replay()
return y.clone()
""", "\ngraphs = {}\n"),
    torch("side-stream-event", "a side stream that events join on both sides", """
main = torch.cuda.current_stream()
before, after = torch.cuda.Event(), torch.cuda.Event()
half = x.shape[0] // 2
y = torch.empty(x.shape[0], w.shape[1], device=x.device)
before.record(main)
side[0] = side[0] or torch.cuda.Stream()
side[0].wait_event(before)
with torch.cuda.stream(side[0]):
    torch.mm(x[half:], w, out=y[half:])
    after.record(side[0])
torch.mm(x[:half], w, out=y[:half])
main.wait_event(after)
return y.relu_()
""", "\nside = [None]\n", allowed={"threads"}),
    torch("addmm-beta", "a sum that ignores what the output held", """
y = torch.empty(x.shape[0], w.shape[1], device=x.device)
return torch.addmm(y, x, w, beta=0, out=y).relu_()
"""),
]
