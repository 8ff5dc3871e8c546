"""Swish, scaled, as a CuTe DSL kernel: a thread computes one value."""

import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cutlass.cute.runtime import from_dlpack
from cutlass.torch import current_stream

THREADS = 256
COMPILED = {}


@cute.kernel
def swish_kernel(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * THREADS + thread
    if at < n:
        value = x[at]
        y[at] = value * 2.0 / (1.0 + cute.math.exp(-value))


@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32, stream):
    swish_kernel(x, y, n).launch(grid=[(n + THREADS - 1) // THREADS, 1, 1],
                                 block=[THREADS, 1, 1], stream=stream)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        stream = current_stream()
        given = [from_dlpack(tensor.view(-1)).mark_layout_dynamic() for tensor in (x, y)]
        key = x.dtype
        if key not in COMPILED:
            COMPILED[key] = cute.compile(launch, *given, x.numel(), stream)
        COMPILED[key](*given, x.numel(), stream)
        return y
