"""CUDA sources are built without a card, once per content, and their compiler's report is read."""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compile import triton_aot
from harness.compile.c_compiler import BuildError
from harness.compile.device_code import device_build, source_constants, toolkits
from harness.compile.device_code.build_ahead import BuildAhead
from harness.compile.device_code.device_build import DeviceBuild, DeviceCompiler, for_people
from harness.compile.place import Place
from harness.errors import EnvironmentFault
from harness.tasks.target import Launch, Target
from harness.tasks.task_file import BadField, check
from tests.support.kernels import device_case
from tests.support.kernels.device_case import GLOBAL, LAUNCHER, needs_nvcc, needs_nvrtc

LIBRARY = device_case.target(launch=None)


def place(folder: Path, arch: str = "sm_90") -> Place:
    return Place(scratch=str(folder), arch=arch, python=device_case.NVRTC_PYTHON)


def build(folder: Path, source: str, target: Target | None = None, arch: str = "sm_90",
          name: str = "tree") -> DeviceBuild:
    compiler = DeviceCompiler(target or device_case.target(), place(folder, arch))
    return compiler.build(device_case.tree(folder / name, source))


@needs_nvrtc
def test_global_function_compiles_without_a_toolkit_or_a_card(tmp_path: Path) -> None:
    made = build(tmp_path, GLOBAL)
    assert made.symbol == "twice" and Path(made.path).read_bytes().startswith(b"\x7fELF")
    assert made.launches == {"odd": (2, 1, 1, 256, 1, 1, 0), "big": (1 << 14, 1, 1, 256, 1, 1, 0)}
    assert [(each.kernel, each.config_class, each.threads) for each in made.resources] == [
        ("twice", "odd", 256), ("twice", "big", 256)]
    assert all((each.registers or 0) > 0 and each.spills == 0 for each in made.resources)


@needs_nvrtc
def test_knob_of_the_source_changes_the_launch(tmp_path: Path) -> None:
    made = build(tmp_path, GLOBAL.replace("TILE 256", "TILE 128"))
    assert made.launches["odd"] == (3, 1, 1, 128, 1, 1, 0)


@needs_nvrtc
def test_instance_of_a_template_can_be_the_entry(tmp_path: Path) -> None:
    source = GLOBAL.replace('extern "C" ', "template <typename T> ").replace("float", "T")
    made = build(tmp_path, source, device_case.target(entry="twice<float>"))
    assert made.symbol.startswith("_Z5twiceIf")


@needs_nvrtc
@pytest.mark.parametrize("header", ["cstdint", "cuda_runtime.h", "math.h", "cfloat"])
def test_headers_of_the_host_do_not_stop_nvrtc(tmp_path: Path, header: str) -> None:
    assert build(tmp_path, f"#include <{header}>\n{GLOBAL}").symbol == "twice"


@needs_nvrtc
def test_infinity_needs_no_header_of_the_host(tmp_path: Path) -> None:
    source = "#include <math.h>\n" + GLOBAL.replace("factor * x[i]", "fminf(x[i], INFINITY)")
    assert build(tmp_path, source).symbol == "twice"


PROGRAM = """
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>
int main() {
    std::vector<float> host(1024, 1.0f);
    float *x, *out;
    cudaMalloc(&x, 4096);
    cudaMalloc(&out, 4096);
    twice<<<4, TILE>>>(x, out, 2.0f, 1024);
    printf("%s\\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
"""
"""The host code of a program that launches its own kernel, which NVRTC does not compile."""


@needs_nvcc
def test_kernel_of_a_whole_program_is_compiled_by_nvcc(tmp_path: Path) -> None:
    made = build(tmp_path, GLOBAL.replace('extern "C" ', "static ") + PROGRAM)
    assert "twice" in made.symbol and Path(made.path).read_bytes().startswith(b"\x7fELF")
    assert made.resources[0].registers and made.launches["odd"][3] == 256


@needs_nvcc
def test_launched_instance_of_a_programs_template_is_the_entry(tmp_path: Path) -> None:
    kernel = GLOBAL.replace('extern "C" ', "template <typename T, bool ODD> ").replace("float", "T")
    program = PROGRAM.replace("twice<<<", "twice<float, false><<<") + PROGRAM.replace(
        "main", "other").replace("twice<<<", "twice<float, true><<<")
    made = build(tmp_path, kernel + program, device_case.target(entry="twice<float, true>"))
    assert made.symbol.startswith("_Z5twiceIfLb1E")


@needs_nvrtc
def test_refused_host_code_names_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolkits, "find", lambda language: "")
    with pytest.raises(BuildError, match=r"compiles no function of the host: install nvcc"):
        build(tmp_path, GLOBAL + "int other() { return 1; }\n")


@needs_nvrtc
def test_error_names_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"kernel\.cu\(4\): error: .*undeclared"):
        build(tmp_path, GLOBAL.replace("factor * x[i]", "undeclared * x[i]"))


@needs_nvrtc
def test_launch_that_no_card_accepts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="4096 threads per block, sm_90 allows 1024"):
        build(tmp_path, GLOBAL.replace("TILE 256", "TILE 4096"))


@needs_nvrtc
def test_spilled_registers_are_the_first_bottleneck(tmp_path: Path) -> None:
    crowded = """extern "C" __global__ void __launch_bounds__(1024, 2)
twice(const float *x, float *out, float factor, int n) {
    float v[64];
    for (int i = 0; i < 64; i++) v[i] = x[threadIdx.x + i * n];
    __syncthreads();
    for (int i = 0; i < 64; i++) out[threadIdx.x + i * n] = v[i] * v[63 - i] * factor;
}
"""
    made = build(tmp_path, crowded, device_case.target(launch=Launch(grid=(8,), block=(1024,))))
    assert (made.resources[0].spills or 0) > 0, made.resources
    limits = triton_aot.bottlenecks_of(made.resources)
    assert limits[0].limiter == "register spills"
    assert "idle multiprocessors" in {each.limiter for each in limits}


@needs_nvrtc
def test_equal_trees_are_compiled_once(tmp_path: Path) -> None:
    first = build(tmp_path, GLOBAL, name="one")
    made = Path(first.path).stat().st_mtime_ns
    second, third = build(tmp_path, GLOBAL, name="two"), build(tmp_path, GLOBAL + "//", name="3")
    assert second == first and Path(second.path).stat().st_mtime_ns == made
    assert third.identity != first.identity


@needs_nvrtc
def test_trial_uses_the_build_made_ahead(tmp_path: Path) -> None:
    tree, text = device_case.tree(tmp_path / "tree", GLOBAL), GLOBAL.replace("256", "512")
    ahead = BuildAhead(device_case.target(), place(tmp_path), tree, tmp_path / "ahead")
    for source in (text, text, GLOBAL):
        ahead.expect(source)
    wait(ahead._futures.values(), 60)
    built = {path.parent.name for path in tmp_path.glob("builds/*/build.json")}
    (tree / "kernel.cu").write_text(text)
    trial = DeviceCompiler(device_case.target(), place(tmp_path)).build(tree)
    assert len(built) == 2 and trial.identity in built
    ahead.close()
    assert not (tmp_path / "ahead").exists()


@pytest.mark.slow
@needs_nvcc
def test_launcher_becomes_a_shared_library(tmp_path: Path) -> None:
    made = build(tmp_path, LAUNCHER, LIBRARY)
    assert made.symbol == "twice" and made.launches == {}
    [kernel] = made.resources
    assert [each.kernel for each in for_people(made.resources)] == ["twice_kernel"]
    assert kernel.arch == "sm_90a" and kernel.spills == 0


@needs_nvcc
def test_compiler_gets_the_flags_of_the_task(tmp_path: Path) -> None:
    wanted = LAUNCHER.replace("factor * x[i]", "FACTOR * x[i]")
    assert build(tmp_path, wanted, replace(LIBRARY, build=("-O2", "-DFACTOR=2"))).symbol
    with pytest.raises(BuildError, match="FACTOR"):
        build(tmp_path, wanted, LIBRARY, name="without")


def test_error_states_the_missing_compiler_and_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EnvironmentFault, match=r"no hipcc found.*ROCM_PATH"):
        toolkits.compiler("hip")


@pytest.mark.parametrize(("launch", "why"), [
    (Launch(grid=(), block=(1,)), "a grid has 1 to 3 dimensions"),
    (Launch(grid=(1,), block=(1, 1, 1, 1)), "a block has 1 to 3 dimensions")])
def test_wrong_launch_is_refused_with_the_task(launch: Launch, why: str) -> None:
    with pytest.raises(BadField, match=why):
        check(replace(device_case.target(), launch=launch))


@needs_nvrtc
def test_error_states_the_unknown_name_of_a_launch(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="unknown name 'TILES'"):
        build(tmp_path, GLOBAL, device_case.target(launch=Launch(grid=("n // TILES",), block=(1,))))


def test_constants_of_a_source_are_whole_numbers_in_terms_of_earlier_ones() -> None:
    source = """
#define WARPS 4  // kopt: knob WARPS in [4, 8]
#define THREADS (32 * WARPS)
constexpr int ROWS = THREADS / 3;
static constexpr unsigned kTile = 16u, other = 2;
const float scale = 0.5f;
#define MAX(a, b) ((a) > (b) ? (a) : (b))
"""
    assert source_constants.find(source) == {
        "WARPS": 4, "THREADS": 128, "ROWS": 42, "kTile": 16}


def test_resources_are_read_from_the_report_of_the_amd_compiler() -> None:
    log = """kernel.hip:3:1: remark: Function Name: twice [-Rpass-analysis=kernel-resource-usage]
kernel.hip:3:1: remark:     SGPRs: 12 [-Rpass-analysis=kernel-resource-usage]
kernel.hip:3:1: remark:     VGPRs: 7 [-Rpass-analysis=kernel-resource-usage]
kernel.hip:3:1: remark:     ScratchSize [bytes/lane]: 16 [-Rpass-analysis=kernel-resource-usage]
kernel.hip:3:1: remark:     Occupancy [waves/SIMD]: 8 [-Rpass-analysis=kernel-resource-usage]
kernel.hip:3:1: remark:     LDS Size [bytes/block]: 1024 [-Rpass-analysis=kernel-resource-usage]
"""
    [kernel] = device_build.parse_report(log, "gfx942")
    assert (kernel.kernel, kernel.registers, kernel.scalar_registers, kernel.spills,
            kernel.shared_bytes, kernel.waves) == ("twice", 7, 12, 16, 1024, 8)
