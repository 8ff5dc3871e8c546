"""The compilers of CUDA C++ and HIP on this machine, and how each builds a shared library."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentFault

FIRST_SPECIFIC = 90
"""From this architecture number on, `sm_90a` has instructions that `sm_90` lacks."""
CHECK = "kopt_last_error"
"""The function that reports a failed launch; see `errors_of`."""


@dataclass(frozen=True, kw_only=True)
class Toolkit:
    """A language's toolkit: its compiler, its usual folder, and how a build asks for its report."""

    program: str
    variable: str
    usual: str
    report: tuple[str, ...]
    position_independent: tuple[str, ...]
    language: str
    prefix: str
    arch_flag: str
    default_arch: str


TOOLKITS = {
    "cuda": Toolkit(program="nvcc", variable="CUDA_HOME", usual="/usr/local/cuda",
                    report=("-Xptxas", "-v"), position_independent=("-Xcompiler", "-fPIC"),
                    language="cu", prefix="cuda", arch_flag="-arch=", default_arch="sm_90"),
    "hip": Toolkit(program="hipcc", variable="ROCM_PATH", usual="/opt/rocm",
                   report=("-Rpass-analysis=kernel-resource-usage",),
                   position_independent=("-fPIC",), language="hip", prefix="hip",
                   arch_flag="--offload-arch=", default_arch="gfx942")}


def compiler(language: str) -> str:
    """Return the path of nvcc or hipcc. Raises EnvironmentFault where there is none."""
    kit = TOOLKITS[language]
    folders = [os.environ.get("PATH", ""), *(f"{root}/bin" for root in (
        os.environ.get(kit.variable, ""), kit.usual) if root)]
    if path := shutil.which(kit.program, path=os.pathsep.join(folders)):
        return path
    raise EnvironmentFault(
        f"no {kit.program} found, which a function of the host needs", fix="install it, or set "
        f"{kit.variable}; a __global__ function with `launch` in its task does without it")


def find(language: str) -> str:
    """Return the path of nvcc or hipcc, "" where there is none."""
    try:
        return compiler(language)
    except EnvironmentFault:
        return ""


def arch_of(language: str, arch: str) -> str:
    """Return the architecture to compile for; a default where this machine has no such card."""
    arch = arch.partition(":")[0] or TOOLKITS[language].default_arch
    number = arch.removeprefix("sm_")
    specific = number.isdigit() and int(number) >= FIRST_SPECIFIC
    return f"{arch}a" if specific else arch


def argv(language: str, path: str, arch: str, flags: tuple[str, ...], header: Path, out: Path,
         source: str) -> list[str]:
    """Return the command that builds a shared library and reports each kernel's resources."""
    kit = TOOLKITS[language]
    return [path, f"{kit.arch_flag}{arch}", *kit.report, *(flags or ("-O3",)),
            *kit.position_independent, "-shared", "-include", str(header), "-o", str(out),
            "-x", kit.language, source]


def cubin_argv(path: str, arch: str, flags: tuple[str, ...], out: Path, source: str) -> list[str]:
    """Return nvcc's command that compiles a source's kernels and reports each one's resources."""
    kit = TOOLKITS["cuda"]
    return [path, "-cubin", f"{kit.arch_flag}{arch}", *kit.report, *(flags or ("-O3",)),
            "-o", str(out), "-x", kit.language, source]


def demangled(symbol: str) -> str:
    """Return a C++ function with its template's arguments and parameters, without spaces."""
    tool = shutil.which("c++filt") or shutil.which("cu++filt")
    text = subprocess.run([tool, symbol], capture_output=True, text=True, check=False,
                          timeout=10).stdout if tool else symbol
    return re.sub(r"\s|\((?:unsigned )?(?:int|long|bool)\)", "", text).removeprefix("void")


def errors_of(language: str) -> str:
    """Return a header with a function that returns what failed since its last call, or null.

    A launch returns no error, and only the library's own copy of the runtime knows of it.
    """
    kit = TOOLKITS[language]
    include = "cuda_runtime.h" if language == "cuda" else "hip/hip_runtime.h"
    return (f"#include <{include}>\n"
            f'extern "C" __attribute__((visibility("default"), used)) const char *{CHECK}() {{\n'
            f"    {kit.prefix}Error_t error = {kit.prefix}GetLastError();\n"
            f"    return error == {kit.prefix}Success ? nullptr : "
            f"{kit.prefix}GetErrorString(error);\n}}\n")


CLANGS = ("amdclang++", "clang++", *(f"clang++-{version}" for version in range(21, 15, -1)))
CLANG_HEADER = """#pragma once
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
"""The header of a HIP source where there is neither hipcc nor hiprtc. Math functions, warp
intrinsics and types such as __half need ROCm's own headers."""


def find_clang() -> str:
    """Return the path of a clang++, "" where there is none."""
    return next((path for name in CLANGS if (path := shutil.which(name))), "")


def clang_argv(path: str, arch: str, flags: tuple[str, ...], folder: Path, out: Path,
               source: str) -> list[str]:
    """Return the command that compiles a source's kernels; writes the header below a folder."""
    header = folder / "include" / "hip" / "hip_runtime.h"
    header.parent.mkdir(parents=True)
    header.write_text(CLANG_HEADER)
    return [path, "-x", "hip", f"--offload-arch={arch}", "--cuda-device-only",
            "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc", f"-I{folder / 'include'}",
            "-include", str(header), "-Rpass-analysis=kernel-resource-usage", *(flags or ("-O3",)),
            "-o", str(out), source]
