"""The resources that kopt reads of a compiled kernel agree with the compilers' own tools."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.compile.kernel_resources import KernelResources
from harness.search.space import knobs
from harness.tasks import task_file
from harness.verdict import Value
from tests.support.paths import EXAMPLES
from tests.support.programs import shared_zygotes

SPILLING: dict[str, Value] = {
    "BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "NUM_WARPS": 8, "NUM_STAGES": 4,
    "DESCRIPTOR": 0, "PERSISTENT": 1, "FLATTEN": 0, "SPLIT": 0}
SHORT: dict[str, Value] = {"BLOCK": 1024, "PER_THREAD": 4, "NUM_STAGES": 2, "VARIANT": "online"}
RESERVED = {"sm_90": 1024, "gfx942": 0}
"""Bytes of static shared memory that an architecture reserves if a kernel uses shared memory."""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)


def of_nvidia(folder: Path, kernel: str) -> dict[str, int]:
    """Return resources by cuobjdump of the cubin and by ptxas, which compiles the PTX again."""
    [cubin], [ptx] = (folder.rglob(f"{kernel}.{ending}") for ending in ("cubin", "ptx"))
    spec = find_spec("triton")
    assert spec is not None and spec.origin is not None
    tools = Path(spec.origin).parent / "backends" / "nvidia" / "bin"
    line = run(tools / "cuobjdump", "--dump-resource-usage", cubin).stdout.split(f"{kernel}:")[-1]
    dumped = dict(re.findall(r"\b(REG|SHARED):(\d+)", line))
    printed = run(tools / "ptxas", "-lineinfo", "-v", "--gpu-name=sm_90a", ptx, "-o",
                  folder / "again").stderr
    [(stored, loaded)] = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", printed)
    assert re.findall(r"Used (\d+) registers", printed) == [dumped["REG"]]
    return {"registers": int(dumped["REG"]), "spills": int(stored) + int(loaded),
            "static": int(dumped["SHARED"])}


def of_amd(folder: Path, kernel: str) -> dict[str, int]:
    """Return the counts of the code object's metadata: the ELF note of type 32, in MessagePack."""
    [binary] = folder.rglob(f"{kernel}.hsaco")
    data = binary.read_bytes()
    start, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIIIQ", data, start + index * size) for index in range(count)]
    at = next(header[4] for header in headers if header[1] == 7)  # SHT_NOTE
    name, length, kind = struct.unpack_from("<III", data, at)
    assert kind == 32
    at += 12 + -(-name // 4) * 4
    note: dict[str, Any] = msgspec.msgpack.decode(data[at:at + length])
    [own] = note["amdhsa.kernels"]
    return {"registers": own[".vgpr_count"], "scalar_registers": own[".sgpr_count"],
            "spills": 4 * (own[".vgpr_spill_count"] + own[".sgpr_spill_count"]),
            "static": own[".group_segment_fixed_size"]}


def of_launcher(folder: Path, kernel: str, backend: str) -> dict[str, int]:
    """Return the shared memory and threads of the launch from the file that Triton wrote."""
    launches = [json.loads(path.read_text()) for path in folder.rglob(f"{kernel}.json")]
    [own] = [each for each in launches if each["target"]["backend"] == backend]
    return {"shared_bytes": own["shared"],
            "threads": own["num_warps"] * own["target"]["warp_size"]}


def compile_example(example: str, name: str, config: dict[str, Value],
                    folder: Path) -> tuple[KernelResources, ...]:
    (tree := folder / "tree").mkdir()
    source = knobs.read(EXAMPLES / example / "kernel.py")
    (tree / "kernel.py").write_text(knobs.apply(source, config, language="triton"))
    task = task_file.load(EXAMPLES / example / "task.yaml")
    return shared_zygotes.resources(replace(task, classes=(task.config_class(name),)), tree,
                                    list(RESERVED), folder / "scratch")


@pytest.mark.slow
@pytest.mark.parametrize(("example", "config_class", "config", "spills"), [
    ("matmul_triton", "square", SPILLING, True), ("softmax_triton", "odd", SHORT, False)])
def test_resources_agree_with_the_compilers_tools(
        tmp_path: Path, example: str, config_class: str, config: dict[str, Value],
        spills: bool) -> None:
    compiled = compile_example(example, config_class, config, tmp_path)
    assert {kernel.arch for kernel in compiled} == set(RESERVED)
    for kernel in compiled:
        is_nvidia = kernel.arch.startswith("sm")
        expected = (of_nvidia if is_nvidia else of_amd)(tmp_path, kernel.kernel)
        static = expected.pop("static")
        expected |= of_launcher(tmp_path, kernel.kernel, "cuda" if is_nvidia else "hip")
        assert {name: getattr(kernel, name) for name in expected} == expected
        assert bool(kernel.spills) == spills
        assert static == (RESERVED[kernel.arch] if kernel.shared_bytes or static else 0)
