"""Compiles HIP kernels with clang's AMD target, where there is neither hipcc nor hiprtc.

The code object has all of a kernel but what ROCm's own headers declare: math functions, warp
intrinsics and types such as __half need ROCm.
"""

from __future__ import annotations

import shutil
from pathlib import Path

NAMES = ("amdclang++", "clang++", *(f"clang++-{version}" for version in range(21, 15, -1)))
HEADER = """#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
typedef decltype(sizeof(0)) size_t;
#define KOPT_AXIS(axis, value) \\
    struct { __device__ operator unsigned() const { return (value); } } axis
#define KOPT_INDEX(name, of) extern const __device__ __attribute__((weak)) struct name##_type { \\
    KOPT_AXIS(x, of##x()); KOPT_AXIS(y, of##y()); KOPT_AXIS(z, of##z()); } name
#define KOPT_GRID(axis) \\
    (__builtin_amdgcn_grid_size_##axis() / __builtin_amdgcn_workgroup_size_##axis())
KOPT_INDEX(threadIdx, __builtin_amdgcn_workitem_id_);
KOPT_INDEX(blockIdx, __builtin_amdgcn_workgroup_id_);
KOPT_INDEX(blockDim, __builtin_amdgcn_workgroup_size_);
extern const __device__ __attribute__((weak)) struct gridDim_type {
    KOPT_AXIS(x, KOPT_GRID(x)); KOPT_AXIS(y, KOPT_GRID(y)); KOPT_AXIS(z, KOPT_GRID(z)); } gridDim;
__device__ inline void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
"""


def find() -> str:
    """Return the path of a clang++, "" where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), "")


def argv(path: str, arch: str, flags: tuple[str, ...], folder: Path, out: Path,
         source: str) -> list[str]:
    """Return the command that compiles a source's kernels; writes the header below a folder."""
    header = folder / "include" / "hip" / "hip_runtime.h"
    header.parent.mkdir(parents=True)
    header.write_text(HEADER)
    return [path, "-x", "hip", f"--offload-arch={arch}", "--cuda-device-only",
            "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc", f"-I{folder / 'include'}",
            "-include", str(header), "-Rpass-analysis=kernel-resource-usage", *(flags or ("-O3",)),
            "-o", str(out), source]
