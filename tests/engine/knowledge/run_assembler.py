"""Assembles lines of `architecture | instruction` and prints for each whether it is accepted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PTX = """.version 8.7
.target {arch}
.address_size 64
.visible .entry kernel()
{{
.reg .b32 %r<300>; .reg .b64 %d<8>; .reg .f32 %f<300>; .reg .f64 %e<32>; .reg .pred %p;
.shared .align 128 .b8 %s[1024]; .shared .align 8 .b64 %m;
{line}
ret;
}}
"""


def nvidia(arch: str, line: str) -> bool:
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    Path("line.ptx").write_text(PTX.format(arch=arch, line=line))
    done = subprocess.run([tools / "ptxas-blackwell", "-arch", arch, "line.ptx", "-o", "x.cubin"],
                          capture_output=True, text=True, check=False)
    known = "not supported|Unknown modifier|unexpected value|requires|Illegal matrix"
    assert done.returncode == 0 or re.search(known, done.stderr), done.stderr
    return done.returncode == 0


def amd(arch: str, line: str) -> bool:
    from triton._C.libtriton import amd, llvm

    llvm.init_targets()
    target = f'.amdgcn_target "amdgcn-amd-amdhsa--{arch}"\n.text\nkernel:\n'
    return bool(amd.assemble_amdgcn(f"{target}{line}\ns_endpgm\n", arch, ""))


if __name__ == "__main__":
    for word in sys.argv[1:]:
        arch, line = word.split(" | ")
        print(int((nvidia if arch.startswith("sm_") else amd)(arch, line)))
