"""Reads compiled code: the assembler's report on a kernel, and its PTX or AMD assembly.

A `section` is one innermost loop, or all code outside such loops. A kernel from a cache has no
assembler report; then its cubin is read.
"""

from __future__ import annotations

import re
import struct
from typing import Any

_USED = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_PTX_LOAD = re.compile(r"\bld\.global[\w:.]*?(?:\.v([248]))?\.[busf](\d+)\b")
_PTX_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global[\w:.]* *\[[^\]]*\], *\[[^\]]*\], *"
                       r"(0x[0-9a-f]+|\d+)")
_GCN_LOAD = re.compile(r"\b(?:global|buffer|flat)_load_(dwordx[234]|dword|ushort|short|ubyte|b\d+)")
_GCN_BYTES = {"dwordx4": 16, "dwordx3": 12, "dwordx2": 8, "dword": 4, "ushort": 2, "short": 2,
              "ubyte": 1}
_MATRIX = (("tcgen05", r"tcgen05\.mma"), ("wgmma", r"wgmma\.mma_async"), ("mma", r"\bmma\.sync"),
           ("mfma", r"v_mfma"), ("wmma", r"v_wmma"))
_PRODUCT = re.compile(r"\b(wgmma)\.mma_async[\w.:]*?\.m(\d+)n(\d+)k(\d+)"
                      r"|\b(mma)\.sync[\w.:]*?\.m(\d+)n(\d+)k(\d+)"
                      r"|\b(v_mfma)_[a-z0-9]+_(\d+)x(\d+)x(\d+)")
_LABEL = re.compile(r"^(\$?[.\w]+):")
_JUMP = re.compile(r"\b(?:bra(?:\.uni)?|s_c?branch\w*)\s+(\$?[.\w]+)")
WARPS_OF_WGMMA = 4
NV_INFO = 0x70000000
SIZED, REGISTER_COUNT, FRAME_SIZE = 4, 0x2F, 0x11
"""NV_INFO is the type of an ELF section with attributes. One of form SIZED carries a size."""


def resources(compiled: Any, report: str) -> dict[str, Any]:
    """Read one compiled kernel: its metadata, the assembler's report, the text of the code."""
    metadata = compiled.metadata
    properties: dict[str, Any] = {"shared_bytes": metadata.shared, "stages": metadata.num_stages,
                                  "blocks_per_cluster": metadata.num_ctas,
                                  "threads": metadata.num_warps * metadata.target.warp_size}
    text = compiled.asm.get("ptx") or compiled.asm.get("amdgcn") or ""
    if "ptx" in compiled.asm:
        used = _USED.findall(report)
        spills = _SPILLS.findall(report)
        properties |= {"registers": max(map(int, used), default=None),
                       "spills": sum(int(a) + int(b) for a, b in spills) if spills else None}
        if not used:
            properties |= of_cubin(compiled.asm.get("cubin", b""))
        bulk = [128] if "cp.async.bulk" in text else []
    else:
        spilled = [number(text, name) for name in (".vgpr_spill_count:", ".sgpr_spill_count:")]
        properties |= {"registers": number(text, ".vgpr_count:"),
                       "waves": number(text, "Occupancy:"),
                       "scalar_registers": number(text, ".sgpr_count:"),
                       "spills": None if None in spilled else sum(s or 0 for s in spilled) * 4}
        bulk = []
    properties["load_bytes"] = max(loads(text) + bulk, default=None)
    properties["matrix"] = next((name for name, pattern in _MATRIX if re.search(pattern, text)), "")
    properties["sections"] = sections(text, metadata.num_warps)
    return properties


def of_cubin(data: bytes) -> dict[str, int | None]:
    """Read registers and spills from the attributes (.nv.info sections) of a cubin's functions.

    A stack frame may hold more than spills, so only a frame of zero bytes proves zero spills.
    """
    attributes: dict[int, list[int]] = {}
    try:
        start, = struct.unpack_from("<Q", data, 40)
        size, count = struct.unpack_from("<HH", data, 58)
        for index in range(count):
            _, kind, _, _, at, length = struct.unpack_from("<IIQQQQ", data, start + index * size)
            if kind != NV_INFO:
                continue
            end = at + length
            while at + 4 <= end:
                form, attribute, value = struct.unpack_from("<BBH", data, at)
                at += 4
                if form == SIZED:
                    if value == 8:
                        attributes.setdefault(attribute, []).append(
                            struct.unpack_from("<II", data, at)[1])
                    at += value
    except struct.error:
        return {"registers": None, "spills": None}
    frames = attributes.get(FRAME_SIZE)
    return {"registers": max(attributes.get(REGISTER_COUNT, []), default=None),
            "spills": 0 if frames and not any(frames) else None}


def number(text: str, label: str) -> int | None:
    match = re.search(re.escape(label) + r"\s*(\d+)", text)
    return int(match[1]) if match else None


def loads(text: str) -> list[int]:
    """Return the bytes of each load from memory by one thread, one form of load after another."""
    sizes = [int(v or 1) * int(bits) // 8 for v, bits in _PTX_LOAD.findall(text)]
    sizes += [int(size, 0) for size in _PTX_COPY.findall(text)]
    return sizes + [_GCN_BYTES.get(kind, int(kind[1:]) // 8 if kind[1:].isdigit() else 4)
                    for kind in _GCN_LOAD.findall(text)]


def flops(text: str) -> int:
    """Return the operations of one warp in mma, wgmma and mfma instructions of the text."""
    total = 0
    for match in _PRODUCT.finditer(text):
        kind, *sizes = [group for group in match.groups() if group]
        m, n, k = map(int, sizes)
        total += 2 * m * n * k // (WARPS_OF_WGMMA if kind == "wgmma" else 1)
    return total


def sections(text: str, warps: int) -> list[dict[str, Any]]:
    """Return the innermost loops in order, then the rest.

    Each has the bytes loaded and the instructions of one thread in one iteration, and the
    operations of one program in matrix instructions.
    """
    lines = text.splitlines()
    labels = {match[1]: at for at, line in enumerate(lines) if (match := _LABEL.match(line))}
    ends: dict[int, int] = {}
    for at, line in enumerate(lines):
        for name in _JUMP.findall(_code(line)):
            start = labels.get(name, at)
            if start < at:
                ends[start] = at + 1
    loops = [(a, b) for a, b in sorted(ends.items())
             if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in ends.items())]
    inside = {at for a, b in loops for at in range(a, b)}
    rest = [line for at, line in enumerate(lines) if at not in inside]
    return [_section(lines[a:b], warps, True) for a, b in loops] + [_section(rest, warps, False)]


def _section(lines: list[str], warps: int, is_loop: bool) -> dict[str, Any]:
    code = [line for line in map(_code, lines) if line]
    body = "\n".join(code)
    return {"loop": is_loop, "load_bytes": sum(loads(body)), "instructions": len(code),
            "flops": flops(body) * warps}


def _code(line: str) -> str:
    """Return the instruction of a line, empty for labels, directives and comments."""
    line = line.split("//")[0].split(";")[0].strip()
    return "" if line.startswith((".", "$", "{", "}", "(", ")")) or line.endswith(":") else line
