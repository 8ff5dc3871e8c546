"""Compiles small kernels with Triton's LLVM, and prints what it does for AMD architectures.

`ARCH REGISTERS ...`: the waves of a SIMD for so many vector registers a lane. `ARCH hazard`: the
instructions from a reciprocal to the product that reads it.
"""

from __future__ import annotations

import re
import sys

from triton._C.libtriton import llvm

KERNEL = """target triple = "amdgcn-amd-amdhsa"
define amdgpu_kernel void @kernel(ptr addrspace(1) %p, float %a) #0 {{
{body}
  ret void
}}
declare float @llvm.amdgcn.rcp.f32(float)
attributes #0 = {{ "amdgpu-flat-work-group-size"="1,64" }}
"""
HAZARD = """  %r = call float @llvm.amdgcn.rcp.f32(float %a)
  %m = fmul float %r, %a
  store float %m, ptr addrspace(1) %p"""


def compiled(arch: str, body: str) -> str:
    return llvm.translate_to_asm(KERNEL.format(body=body), "amdgcn-amd-amdhsa", arch, "", [], False,
                                 False)


if __name__ == "__main__":
    llvm.init_targets()
    arch, *asked = sys.argv[1:]
    for word in asked:
        if word == "hazard":
            text = re.search(r"v_rcp_f32(.*?)v_mul_f32", compiled(arch, HAZARD), re.DOTALL)[1]
            print(*text.splitlines()[1:])
            continue
        last = int(word) - 1
        register = f"v{last}" if last < 256 else f"a{last - 256}"
        used = '  call void asm sideeffect "", "~{v255}"()\n' if last >= 256 else ""
        text = compiled(arch, f'{used}  call void asm sideeffect "", "~{{{register}}}"()')
        print(re.search(r"; Occupancy: (\d+)", text)[1])
