"""A HIP kernel compiles for gfx942 with clang's AMD target where ROCm is absent; nothing runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.compile.c_compiler import BuildError
from harness.compile.device_code import toolkits
from harness.compile.device_code.device_build import DeviceCompiler
from harness.compile.place import Place
from tests.support.kernels import device_case

SOURCE = device_case.GLOBAL.replace("int i =", "__shared__ float tile[TILE]; tile[threadIdx.x] = 1;"
                                    "\n    __syncthreads();\n    int i =").replace(
    "factor * x[i]", "factor * x[i] * tile[TILE - 1 - threadIdx.x]")


def has_amd_target() -> bool:
    return bool(toolkits.find_clang()) and "amdgcn" in subprocess.run(
        [toolkits.find_clang(), "-print-targets"], capture_output=True, text=True,
        check=False).stdout


pytestmark = pytest.mark.skipif(not has_amd_target(), reason="no clang++ with the amdgcn target")


def compiler(root: Path, source: str) -> tuple[DeviceCompiler, Path]:
    tree = device_case.tree(root / "tree", "")
    (tree / "kernel.hip").write_text("#include <hip/hip_runtime.h>\n" + source)
    target = device_case.target(language="hip", source="kernel.hip")
    return DeviceCompiler(target, Place(scratch=str(root / "scratch"), arch="gfx942")), tree


def test_code_object_for_gfx942_and_its_resources(tmp_path: Path) -> None:
    build, tree = compiler(tmp_path, SOURCE)
    made = build.build(tree)
    assert made.symbol == "twice" and Path(made.path).read_bytes().startswith(b"\x7fELF")
    assert made.resources[0].registers and made.resources[0].shared_bytes == 4 * 256


def test_error_of_the_source_is_the_reason(tmp_path: Path) -> None:
    build, tree = compiler(tmp_path, SOURCE.replace("factor * x", "factor * y"))
    with pytest.raises(BuildError, match="undeclared identifier 'y'"):
        build.build(tree)
