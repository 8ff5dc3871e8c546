"""Softmax over the rows of a bfloat16 matrix in CUDA C++: a block takes a row, and reads it twice.

A thread's maximum and sum are of the values that it read; exponentials are one PTX instruction.
"""

import torch
from torch.utils.cpp_extension import load_inline

CALLS = r"""
#include <pybind11/pybind11.h>
void launch(long x, long out, int rows, int cols, long stream);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("launch", &launch); }
"""
KERNEL = r"""
#include <cuda_bf16.h>
#include <math_constants.h>

constexpr int THREADS = 512, WIDE = 8;
constexpr float LOG2E = 1.4426950408889634f;

static __device__ float power(float value) {  // 2 ** value
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

struct Part { float peak, total; };

static __device__ Part joined(Part a, Part b) {
    float peak = fmaxf(a.peak, b.peak);
    if (peak == -CUDART_INF_F) return {peak, 0.0f};
    return {peak, a.total * power(a.peak - peak) + b.total * power(b.peak - peak)};
}

static __device__ Part with(Part part, float value) {
    value *= LOG2E;
    return value > part.peak ? Part{value, part.total * power(part.peak - value) + 1.0f}
                             : Part{part.peak, part.peak == -CUDART_INF_F ? 0.0f :
                                    part.total + power(value - part.peak)};
}

static __global__ void __launch_bounds__(THREADS)
rows_softmax(const __nv_bfloat16 *__restrict__ x, __nv_bfloat16 *__restrict__ out, int cols) {
    __shared__ Part parts[THREADS / 32];
    x += (long)blockIdx.x * cols;
    out += (long)blockIdx.x * cols;
    bool wide = cols % WIDE == 0 && (size_t)x % 16 == 0 && (size_t)out % 16 == 0;
    Part part = {-CUDART_INF_F, 0.0f};
    if (wide)
        for (int at = threadIdx.x * WIDE; at < cols; at += THREADS * WIDE) {
            uint4 loaded = *(const uint4 *)(x + at);
            const __nv_bfloat16 *value = (const __nv_bfloat16 *)&loaded;
            for (int i = 0; i < WIDE; i++) part = with(part, __bfloat162float(value[i]));
        }
    else
        for (int at = threadIdx.x; at < cols; at += THREADS)
            part = with(part, __bfloat162float(x[at]));
    for (int step = 16; step; step /= 2)
        part = joined(part, {__shfl_xor_sync(~0u, part.peak, step),
                             __shfl_xor_sync(~0u, part.total, step)});
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
    __syncthreads();
    part = parts[0];
    for (int warp = 1; warp < THREADS / 32; warp++) part = joined(part, parts[warp]);
    float scale = 1.0f / part.total;
    if (wide)
        for (int at = threadIdx.x * WIDE; at < cols; at += THREADS * WIDE) {
            uint4 loaded = *(const uint4 *)(x + at), stored;
            const __nv_bfloat16 *value = (const __nv_bfloat16 *)&loaded;
            __nv_bfloat16 *result = (__nv_bfloat16 *)&stored;
            for (int i = 0; i < WIDE; i++)
                result[i] = __float2bfloat16(
                    power(__bfloat162float(value[i]) * LOG2E - part.peak) * scale);
            *(uint4 *)(out + at) = stored;
        }
    else
        for (int at = threadIdx.x; at < cols; at += THREADS)
            out[at] = __float2bfloat16(
                power(__bfloat162float(x[at]) * LOG2E - part.peak) * scale);
}

void launch(long x, long out, int rows, int cols, long stream) {
    rows_softmax<<<rows, THREADS, 0, (cudaStream_t)stream>>>(
        (const __nv_bfloat16 *)x, (__nv_bfloat16 *)out, cols);
}
"""
built = load_inline("softmax_rows", CALLS, KERNEL, no_implicit_headers=True)


def softmax(x, out):
    built.launch(x.data_ptr(), out.data_ptr(), *x.shape,
                 torch.cuda.current_stream().cuda_stream)
