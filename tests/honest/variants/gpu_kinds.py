"""Honest kernels for a GPU, of the kinds that most resemble exploits.

Matrix products that are split, persistent, autotuned, compiled or load by descriptors; graphs,
streams, workspaces and operations in place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.honest.case import Honest, problems
from tests.honest.variants.gpu_variants import torch, triton
from tests.honest.variants.variant import Variant

IN_PLACE = replace(problems.BLEND_PYTHON, target=replace(
    problems.BLEND_PYTHON.target, classes=(
        replace(problems.BLEND_PYTHON.target.classes[0], shape={"n": 1 << 20}),)))
TILE = """
import triton
import triton.language as tl


@triton.jit
def tile(a, b, row, col, rows, cols, inner, first, last, BM: tl.constexpr, BN: tl.constexpr,
         BK: tl.constexpr):
    m, n = row * BM + tl.arange(0, BM), col * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(first, last, BK):
        at = k + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * inner + at[None, :],
                       mask=(m[:, None] < rows) & (at[None, :] < last), other=0.0)
        right = tl.load(b + at[:, None] * cols + n[None, :],
                        mask=(at[:, None] < last) & (n[None, :] < cols), other=0.0)
        total += tl.dot(left, right, input_precision="ieee")
    return total, m[:, None] * cols + n[None, :], (m[:, None] < rows) & (n[None, :] < cols)
"""


def product(id: str, title: str, kernel: str, body: str, **fields: Any) -> Variant:
    """Return a variant that computes relu(x w) in Triton; x: (rows, inner), w: (inner, cols)."""
    return torch(id, title, """
x, w = x.contiguous(), w.contiguous()
rows, inner, cols = x.shape[0], x.shape[1], w.shape[1]
y = torch.empty(rows, cols, device=x.device)
""" + body + "\nreturn y", TILE + kernel, **fields)


def in_place(id: str, title: str, body: str, before: str = "") -> Variant:
    return Variant(id, Honest(title=title, source=problems.blend_python(body, before), gpu=True,
                              problem=IN_PLACE))


VARIANTS = [
    product("persistent-product", "as many programs as multiprocessors take tiles in turn", """

@triton.jit
def persistent(a, b, y, rows, cols, inner, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    across = tl.cdiv(cols, BN)
    for at in range(tl.program_id(0), tl.cdiv(rows, BM) * across, tl.num_programs(0)):
        total, where, mask = tile(a, b, at // across, at % across, rows, cols, inner, 0, inner,
                                  BM, BN, BK)
        tl.store(y + where, tl.maximum(total, 0), mask=mask)
""", """
programs = torch.cuda.get_device_properties(x.device).multi_processor_count
persistent[(programs,)](x, w, y, rows, cols, inner, BM=64, BN=64, BK=32)
"""),
    triton("persistent-counter", "programs take their tiles from a counter that each call clears",
           """

@triton.jit
def counted(x, out, counter, n, BLOCK: tl.constexpr):
    at = tl.atomic_add(counter, 1)
    while at * BLOCK < n:
        here = at * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + here, 2 * tl.load(x + here, mask=here < n), mask=here < n)
        at = tl.atomic_add(counter, 1)
""", """
counter = torch.zeros(1, dtype=torch.int32, device=x.device)
counted[(64,)](x, out, counter, x.numel(), BLOCK=1024)
"""),
    product("split-k-atomics", "programs add parts of the inner dimension by atomics", """

@triton.jit
def split(a, b, y, rows, cols, inner, part, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    first = tl.program_id(2) * part
    total, where, mask = tile(a, b, tl.program_id(0), tl.program_id(1), rows, cols, inner, first,
                              tl.minimum(first + part, inner), BM, BN, BK)
    tl.atomic_add(y + where, total, mask=mask)
""", """
y.zero_()
grid = triton.cdiv(rows, 64), triton.cdiv(cols, 64), 2
split[grid](x, w, y, rows, cols, inner, triton.cdiv(inner, 64) * 32, BM=64, BN=64, BK=32)
y.relu_()
"""),
    product("split-k-workspace", "parts in a workspace, summed by a second kernel", """

@triton.jit
def parts(a, b, space, rows, cols, inner, part, BM: tl.constexpr, BN: tl.constexpr,
          BK: tl.constexpr):
    first = tl.program_id(2) * part
    total, where, mask = tile(a, b, tl.program_id(0), tl.program_id(1), rows, cols, inner, first,
                              tl.minimum(first + part, inner), BM, BN, BK)
    tl.store(space + tl.program_id(2) * rows * cols + where, total, mask=mask)


@triton.jit
def summed(space, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(space + at, mask=at < n) + tl.load(space + n + at, mask=at < n)
    tl.store(y + at, tl.maximum(total, 0), mask=at < n)


spaces = {}
""", """
key = rows, cols
if key not in spaces:
    spaces[key] = torch.empty(2, rows, cols, device=x.device)
grid = triton.cdiv(rows, 64), triton.cdiv(cols, 64), 2
parts[grid](x, w, spaces[key], rows, cols, inner, triton.cdiv(inner, 64) * 32,
            BM=64, BN=64, BK=32)
summed[(triton.cdiv(y.numel(), 1024),)](spaces[key], y, y.numel(), BLOCK=1024)
"""),
    product("autotuned-product", "triton.autotune drops some configurations before it times", """

def fitting(configs, args, **kwargs):
    return [one for one in configs if one.kwargs["BM"] <= max(64, args["rows"])] or configs


@triton.autotune(
    configs=[triton.Config({"BM": m, "BN": 64, "BK": 32}, num_warps=4, num_stages=s)
             for m in (64, 128) for s in (2, 3)],
    key=["rows", "cols", "inner"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def tuned(a, b, y, rows, cols, inner, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    total, where, mask = tile(a, b, tl.program_id(0), tl.program_id(1), rows, cols, inner, 0,
                              inner, BM, BN, BK)
    tl.store(y + where, tl.maximum(total, 0), mask=mask)
""", """
tuned[lambda meta: (triton.cdiv(rows, meta["BM"]), triton.cdiv(cols, meta["BN"]))](
    x, w, y, rows, cols, inner)
"""),
    product("host-descriptors", "TMA by descriptors that the host makes in each call", """
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def described(a, b, y, inner, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, inner, BK):
        total += tl.dot(a.load([m, k]), b.load([k, n]), input_precision="ieee")
    y.store([m, n], tl.maximum(total, 0))
""", """
if inner % 4 or cols % 4 or any(one.data_ptr() % 16 for one in (x, w, y)):
    torch.mm(x, w, out=y)  # such rows are not whole 16-byte pieces
    return y.relu_()
a, b, c = (TensorDescriptor.from_tensor(one, block) for one, block in (
    (x, [64, 32]), (w, [32, 64]), (y, [64, 64])))
described[(triton.cdiv(rows, 64), triton.cdiv(cols, 64))](a, b, c, inner, BM=64, BN=64, BK=32)
"""),
    triton("inline-ptx-pairs", "an instruction in assembly for two values at a time", """

@triton.jit
def in_pairs(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    v = tl.inline_asm_elementwise("add.f32 $0, $2, $2; add.f32 $1, $3, $3;", "=f,=f,f,f", [v],
                                  dtype=tl.float32, is_pure=True, pack=2)
    tl.store(out + at, v, mask=at < n)
""", "in_pairs[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)"),
    triton("inline-ptx-fma", "a fused multiplication in assembly", """

@triton.jit
def by_fma(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    v = tl.inline_asm_elementwise("fma.rn.f32 $0, $1, 0f40000000, 0f00000000;", "=f,f", [v],
                                  dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out + at, v, mask=at < n)
""", "by_fma[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)"),
    torch("compiled", "torch.compile makes one kernel of the operations after the product", """
return compiled(x, w)
""", """

@torch.compile(dynamic=False)
def compiled(x, w):
    return torch.relu(x @ w)
"""),
    torch("compiled-script", "a function that torch.jit.script has compiled",
          "return scripted(x, w)", """

@torch.jit.script
def scripted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.mm(x, w))
"""),
    torch("two-side-streams", "two streams take a third of the rows each, and are joined", """
main = torch.cuda.current_stream()
y = torch.empty(x.shape[0], w.shape[1], device=x.device)
if not streams:
    streams.extend((torch.cuda.Stream(), torch.cuda.Stream()))
pieces = torch.chunk(torch.arange(x.shape[0]), 3)
bounds = [(int(p[0]), int(p[-1]) + 1) for p in pieces if len(p)]
for (first, last), stream in zip(bounds[1:], streams):
    stream.wait_stream(main)
    with torch.cuda.stream(stream):
        torch.mm(x[first:last], w, out=y[first:last])
torch.mm(x[:bounds[0][1]], w, out=y[:bounds[0][1]])
for stream in streams:
    main.wait_stream(stream)
return y.relu_()
""", "\nstreams = []\n", allowed={"threads"}),
    torch("graph-of-parts", "a graph of three kernels on buffers of its own", """
if torch.cuda.is_current_stream_capturing():
    return torch.relu(x @ w)
key = x.shape, w.shape
if key not in graphs:
    space = [x.clone(), w.clone(), torch.empty(x.shape[0], w.shape[1], device=x.device)]
    steps(*space)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps(*space)
    graphs[key] = graph, space
graph, (a, b, y) = graphs[key]
torch._foreach_copy_([a, b], [x, w])
graph.replay()
return y.clone()
""", """
graphs = {}


def steps(a, b, y):
    half = a.shape[1] // 2
    torch.mm(a[:, :half], b[:half], out=y)
    y.addmm_(a[:, half:], b[half:]).relu_()
"""),
    torch("static-workspace", "a workspace that is kept by shape, and a copy of it is returned", """
key = x.shape, w.shape
if key not in spaces:
    spaces[key] = torch.empty(x.shape[0], w.shape[1], device=x.device)
return torch.mm(x, w, out=spaces[key]).relu()
""", "\nspaces = {}\n"),
    in_place("in-place-on-a-gpu", "one operation in place",
             "torch.lerp(m, g, 0.1, out=m)"),
    in_place("in-place-by-triton", "a Triton kernel that reads and writes one operand", """
n = m.numel()
blended[(triton.cdiv(n, 1024),)](m, g, n, BLOCK=1024)
""", """
import triton
import triton.language as tl


@triton.jit
def blended(m, g, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = 0.9 * tl.load(m + at, mask=at < n) + 0.1 * tl.load(g + at, mask=at < n)
    tl.store(m + at, v, mask=at < n)
"""),
]
