"""Compare `harness.compile.triton_aot`'s numbers with those of the compilers' own tools.

    python bench/aot_agreement.py [--configs 30] [--out FILE]

Thirty configurations of the two Triton examples, compiled for sm_90 and gfx942 without a GPU. For
NVIDIA: `cuobjdump --dump-resource-usage` of the cubin, and `ptxas -v` run once more on the PTX,
both from Triton's package. For AMD: the metadata note of the code object, read by the ELF reader
below, and by `llvm-readelf --notes` where that is installed. Shared memory that
Triton asks for at the launch is in no binary: it is compared with the number that the compiler left
for its launcher, and the binary's own share with what the architecture keeps for itself.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import machine
import msgspec

from harness.compile import triton_aot
from harness.compile.triton_aot import KernelResources
from harness.search.space import knobs
from harness.tasks import task_file
from harness.verdict import Value

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
ARCHS = ("sm_90", "gfx942")
RESERVED = {"sm_90": 1024, "gfx942": 0}
TILES = [(32, 32, 32, 4, 2), (64, 64, 32, 4, 3), (128, 64, 64, 4, 3), (128, 128, 32, 4, 4),
         (128, 128, 64, 8, 3), (128, 256, 64, 8, 3), (256, 128, 64, 8, 2), (256, 128, 64, 4, 2),
         (32, 128, 128, 4, 2), (256, 256, 32, 8, 2), (256, 256, 64, 8, 4), (64, 256, 32, 4, 5),
         (256, 256, 128, 8, 3), (64, 32, 128, 4, 4), (128, 128, 128, 8, 2)]
FORMS = [(0, 0, 0, 0), (0, 1, 0, 0), (0, 1, 1, 0)]
ROWS = [(128, 1), (128, 4), (256, 2), (256, 8), (512, 1), (512, 16), (1024, 4), (1024, 32),
        (2048, 2), (2048, 64), (4096, 4), (4096, 64), (8192, 8), (8192, 32), (8192, 64)]
VARIANTS = ("three_pass", "online", "whole", "persistent")
"""Tiles, their depth, warps and stages, each in one of the forms (descriptors, which gfx942 has
not, persistent, flatten, split) in turn; elements at a time and for a thread. Some spill, some
are larger than any multiprocessor."""


def configs() -> Iterator[tuple[str, str, dict[str, Value]]]:
    """Yield (example, class, knobs), the examples in turn."""
    names = ("DESCRIPTOR", "PERSISTENT", "FLATTEN", "SPLIT")
    for number, ((m, n, k, warps, stages), (block, each)) in enumerate(zip(TILES, ROWS,
                                                                           strict=True)):
        yield "matmul_triton", "odd" if number % 5 == 4 else "square", {
            "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8, "NUM_WARPS": warps,
            "NUM_STAGES": stages, **dict(zip(names, FORMS[number % len(FORMS)], strict=True))}
        yield "softmax_triton", "odd" if number % 5 == 3 else "wide", {
            "BLOCK": block, "PER_THREAD": each, "NUM_STAGES": 1 + number % 3,
            "VARIANT": VARIANTS[number % len(VARIANTS)]}


def source_of(example: str, config: dict[str, Value]) -> str:
    """Return the example with the knobs set."""
    return knobs.apply(knobs.read(EXAMPLES / example / "kernel.py"), config, language="triton")


def compiled(example: str, config_class: str, config: dict[str, Value], folder: Path,
             ) -> tuple[KernelResources, ...]:
    tree = folder / "tree"
    tree.mkdir()
    (tree / "kernel.py").write_text(source_of(example, config))
    task = machine.only(task_file.load(EXAMPLES / example / "task.yaml"), config_class)
    return tuple(kernel for arch in ARCHS for kernel in
                 triton_aot.inspect(task, tree, arch, folder / "scratch").resources)


def left_behind(folder: Path, kernel: str, ending: str) -> Path:
    """Return the only file of this kind in the compiler's cache."""
    [found] = (folder / "scratch").rglob(f"{kernel}.{ending}")
    return found


def run(*command: str | Path) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=True, timeout=120).stdout


def nvidia(folder: Path, kernel: str) -> dict[str, int]:
    """Return the numbers that cuobjdump prints for the cubin and ptxas for the PTX."""
    cubin, ptx = (left_behind(folder, kernel, ending) for ending in ("cubin", "ptx"))
    spec = find_spec("triton")
    assert spec is not None and spec.origin is not None
    tools = Path(spec.origin).parent / "backends" / "nvidia" / "bin"
    line = run(tools / "cuobjdump", "--dump-resource-usage", cubin).split(f"{kernel}:")[-1]
    dumped = {name: int(value) for name, value in re.findall(r"\b(REG|SHARED):(\d+)", line)}
    told = subprocess.run(
        [str(tools / "ptxas"), "-lineinfo", "-v", "--gpu-name=sm_90a", str(ptx), "-o",
         str(folder / "again")], capture_output=True, text=True, check=True, timeout=300).stderr
    stored, loaded = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", told)[0]
    return {"registers": dumped["REG"], "static_shared": dumped["SHARED"],
            "spills": int(stored) + int(loaded),
            "ptxas_registers": int(re.findall(r"Used (\d+) registers", told)[0])}


def amd(folder: Path, kernel: str) -> dict[str, int]:
    """Return the counts of the code object's metadata note."""
    binary = left_behind(folder, kernel, "hsaco")
    [seen] = note(binary.read_bytes())["amdhsa.kernels"]
    names = (".vgpr_count", ".sgpr_count", ".vgpr_spill_count", ".sgpr_spill_count",
             ".group_segment_fixed_size")
    tool = shutil.which("llvm-readelf")
    if tool:
        text = run(tool, "--notes", binary)
        for name in names:
            found = re.search(rf"{re.escape(name)}:\s*(\d+)", text)
            assert found and int(found[1]) == seen[name], f"{name}: llvm-readelf disagrees"
    return {"registers": seen[".vgpr_count"], "scalar_registers": seen[".sgpr_count"],
            "spills": 4 * (seen[".vgpr_spill_count"] + seen[".sgpr_spill_count"]),
            "static_shared": seen[".group_segment_fixed_size"]}


def note(data: bytes) -> dict[str, Any]:
    """Return the metadata of an AMD code object: the ELF note of type 32, in MessagePack."""
    start, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    for index in range(count):
        kind, = struct.unpack_from("<I", data, start + index * size + 4)
        if kind == 7:
            at, = struct.unpack_from("<Q", data, start + index * size + 24)
            name, length, form = struct.unpack_from("<III", data, at)
            at += 12 + -(-name // 4) * 4
            if form == 32:
                return msgspec.msgpack.decode(data[at:at + length], type=dict[str, Any])
    raise ValueError("no metadata note")


def launched(folder: Path, kernel: str, arch: str) -> dict[str, int]:
    """Return the launcher's shared memory and threads from the compiler's cache."""
    for path in (folder / "scratch").rglob(f"{kernel}.json"):
        told = json.loads(path.read_text())
        if told["target"]["backend"] == ("cuda" if arch.startswith("sm") else "hip"):
            return {"shared_bytes": told["shared"],
                    "threads": told["num_warps"] * told["target"]["warp_size"]}
    raise ValueError(f"{kernel} left nothing for {arch}")


def compared(one: KernelResources, folder: Path) -> dict[str, Any]:
    """Return our numbers, the tools' numbers, and the names of those that differ."""
    tools = nvidia(folder, one.kernel) if one.arch.startswith("sm") else amd(folder, one.kernel)
    static = tools.pop("static_shared")
    tools |= launched(folder, one.kernel, one.arch)
    ours = {"registers": one.registers, "spills": one.spills, "shared_bytes": one.shared_bytes,
            "threads": one.threads, "ptxas_registers": one.registers,
            "scalar_registers": one.scalar_registers}
    differ = [name for name, value in tools.items() if ours[name] != value]
    if static != (RESERVED[one.arch] if tools["shared_bytes"] or static else 0):
        differ.append("static_shared")
    return {"arch": one.arch, "kernel": one.kernel, "tools": tools, "static_shared": static,
            "ours": {name: ours[name] for name in tools}, "fits": one.fits, "differ": differ}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", type=int, default=30)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out = args.out or machine.RESULTS / f"aot-agreement-{time.strftime('%Y-%m-%d')}.jsonl"
    lines: list[dict[str, Any]] = [{"kind": "machine", **machine.describe(),
                                    "triton": version("triton"),
                                    "torch": version("torch")}]
    for example, config_class, config in list(configs())[:args.configs]:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            for one in compiled(example, config_class, config, folder):
                row = {"error": one.error, "differ": ["error"]} if one.error else \
                    compared(one, folder)
                lines.append({"kind": "config", "example": example, "class": config_class,
                              "config": config, **row})
                print(json.dumps(lines[-1]), file=sys.stderr, flush=True)
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = lines[1:]
    print(f"{len(rows)} kernels of {args.configs} configurations on {' and '.join(ARCHS)}: "
          f"{sum(not row['differ'] for row in rows)} agree, "
          f"{sum(bool(row['differ']) for row in rows)} differ; "
          f"{sum(row['tools']['spills'] > 0 for row in rows if 'tools' in row)} spill, "
          f"{sum(not row.get('fits', True) for row in rows)} cannot be launched -> {out}")


if __name__ == "__main__":
    main()
