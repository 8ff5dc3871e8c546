"""`kopt new kernel.cu` makes a task and a manifest from a CUDA file."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.manifest import load
from harness.formats.expression import whole
from harness.tasks import task_file
from harness.tasks.target import Launch
from tests.support.kernels import device_case
from tests.support.kernels.device_case import GLOBAL, LAUNCHER
from tests.support.programs.command_line import error_text, kopt

CLASSES = ("--scalar", "factor=2.0", "--class", "odd: n=331", "--class", "big: n=4194304")


def project(folder: Path, source: str) -> Path:
    return device_case.tree(folder / "mine", source)


def new(folder: Path, *words: str) -> tuple[int, str]:
    done = kopt("new", str(folder / "kernel.cu"), *words)
    return done.returncode, error_text(done) if done.returncode else done.stderr + done.stdout


def test_launcher_and_its_kernel_become_a_task(tmp_path: Path) -> None:
    folder = project(tmp_path, LAUNCHER)
    status, text = new(folder, *CLASSES, "--entry", "twice")
    assert status == 0, text
    assert task_file.load(folder / "task.yaml") == device_case.target(launch=None, flops=None)
    written = load.load(folder / "manifest.yaml")
    assert (written.target_lang, written.target_backend, written.gpu.device) == (
        "cuda", "CUDA", "auto")
    assert "knobs: TILE (3); 3 configurations" in text
    assert "first verdict: " in text and "disagrees" not in text


def test_global_function_is_launched_as_in_its_source(tmp_path: Path) -> None:
    folder = project(tmp_path, LAUNCHER)
    status, text = new(folder, *CLASSES, "--entry", "twice_kernel")
    assert status == 0, text
    assert task_file.load(folder / "task.yaml").by_baseline, "no function of this name"
    assert "reference          the kernel as it is" in text
    assert task_file.load(folder / "task.yaml").launch == Launch(
        grid=("(n + TILE - 1) // TILE",), block=("TILE",))
    for reason in ("x                  input float32 [n]  (only read)",
                   "out                output float32 [n]  (written to)",
                   "grid               (n + TILE - 1) // TILE  (<<<...>>> in the source"):
        assert reason in text


def test_missing_launch_of_a_global_function_must_be_given(tmp_path: Path) -> None:
    folder = project(tmp_path, GLOBAL)
    status, text = new(folder, *CLASSES)
    assert status == 2 and "twice: kopt needs the grid of its launch, the block of its launch " \
        "(add --grid '(n + 255) // 256' --block 256)" in text
    status, text = new(folder, *CLASSES, "--grid", "(n + TILE - 1) // TILE", "--block", "TILE")
    assert status == 0, text
    assert task_file.load(folder / "task.yaml") == device_case.target(flops=None)


def test_name_in_the_launch_that_the_program_does_not_say_is_asked_for(tmp_path: Path) -> None:
    source = GLOBAL + """int main() {
    int blocks = 0, n = 4096;
    float *x, *y;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&y, n * sizeof(float));
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, twice, 128, 0);
    twice<<<blocks, 128>>>(x, y, 2.0f, n);
}
"""
    folder = project(tmp_path, source)
    status, text = new(folder)
    assert status == 2 and "twice: kopt needs blocks, in the program's launch (add --class " \
        "'main: n=4096 blocks=1024')" in text
    status, text = new(folder, "--class", "main: n=4096 blocks=1024")
    assert status == 0, text
    launch = task_file.load(folder / "task.yaml").launch
    assert launch is not None and launch.grid == ("blocks",)


def test_single_size_of_a_kernel_with_blocks_in_a_plane_is_a_side(tmp_path: Path) -> None:
    folder = project(tmp_path, """__global__ void turn(float *a, float *b, int width) {
    b[threadIdx.x * width + threadIdx.y] = a[threadIdx.y * width + threadIdx.x];
}
""")
    status, text = new(folder)
    flags = ("--grid", "(width + 15) // 16, (width + 15) // 16", "--block", "16,16",
             "--class", "main: width=1024")
    assert status == 2 and f"(add --grid '{flags[1]}' --block 16,16 --class '{flags[5]}')" in text
    status, text = new(folder, *flags)
    assert status == 0, text
    assert [arg.shape for arg in task_file.load(folder / "task.yaml").args[:2]] == [
        ("width", "width")] * 2


SUMS = """#define N (1 << 10)
template <typename T> __global__ void sums(T *x, T *y) {
    y[blockIdx.x] = x[blockIdx.x * blockDim.x];
}
int main() {
    float *x, *y;
    cudaMalloc(&x, N * sizeof(float));
    cudaMalloc(&y, N / 64 * sizeof(float));
    sums<float><<<N / 64, 64>>>(x, y);
}
"""


def test_kernel_without_sizes_becomes_a_task_of_one_class(tmp_path: Path) -> None:
    folder = project(tmp_path, SUMS + "__global__ void other(float *x) { x[0] = 1; }\n")
    status, text = new(folder)
    assert status == 0, text
    assert "sums<float> is taken; for another kernel of the file: --entry NAME, such as other" \
        in text
    task = task_file.load(folder / "task.yaml")
    assert [(each.name, each.shape) for each in task.classes] == [("main", {})]
    assert [whole(dim, {}) for arg in task.args for dim in arg.shape or ()] == [1024, 16]


@pytest.mark.parametrize(("source", "advice"), [
    ("void run(float *x, int n) {}", 'write extern "C" before a function of the host'),
    ("#include <torch/extension.h>\nvoid run(torch::Tensor x) {}",
     "it is a torch extension: name the Python function that builds and calls it, "
     "kopt new ops.py:FUNCTION")])
def test_file_without_an_entry_says_the_next_step(
        tmp_path: Path, source: str, advice: str) -> None:
    folder = project(tmp_path, source)
    (folder / "ops.py").write_text('ops = load("ops", ["kernel.cu"])\n')
    status, text = new(folder)
    assert status == 2 and advice in text


def test_flag_overrides_an_inferred_role(tmp_path: Path) -> None:
    folder = project(tmp_path, LAUNCHER)
    status, text = new(folder, *CLASSES, "--entry", "twice", "--role", "out=inout")
    assert status == 0, text
    assert task_file.load(folder / "task.yaml").args[1].role == "inout"


def test_second_kernel_of_a_project_gets_a_task_file_of_its_own(tmp_path: Path) -> None:
    folder = project(tmp_path, LAUNCHER)
    assert new(folder, *CLASSES, "--entry", "twice")[0] == 0
    (folder / "other.cu").write_text(LAUNCHER)
    done = kopt("new", str(folder / "other.cu"), "--manifest", str(folder / "other.yaml"),
                *CLASSES, "--entry", "twice")
    assert done.returncode == 0, done.stderr
    assert task_file.load(folder / "other_task.yaml").source == "other.cu"


CPU = """
void twice_cpu(float *x, float *out, float factor, int n) {
    for (int i = 0; i < n; i++) out[i] = factor * x[i];
}
"""


def test_cpu_version_in_the_source_becomes_the_reference(tmp_path: Path) -> None:
    folder = project(tmp_path, GLOBAL + CPU)
    (folder / "reference.py").unlink()
    flags = (*CLASSES, "--grid", "(n + TILE - 1) // TILE", "--block", "TILE")
    status, text = new(folder, *flags)
    assert status == 0, text
    task, file = task_file.load(folder / "task.yaml"), "kopt_task/twice_reference.cpp"
    assert task.reference == f"{file}:twice_cpu" and task.frozen_files == (file,)
    assert f"twice_cpu of the program, every float as a double  ({file})" in text
    assert "program::twice_cpu((double *)x, (double *)out, (double)factor, (int)n)" in (
        folder / file).read_text()


def test_cpu_version_that_does_not_compile_alone_is_named(tmp_path: Path) -> None:
    folder = project(tmp_path, GLOBAL + "struct S { float x; } s;\n"
                     + CPU.replace("factor *", "s.x * factor *"))
    (folder / "reference.py").unlink()
    flags = (*CLASSES, "--grid", "(n + TILE - 1) // TILE", "--block", "TILE")
    status, text = new(folder, *flags)
    assert status == 0, text
    assert "twice_cpu of the program is not the reference: it does not compile alone: " in text
    assert task_file.load(folder / "task.yaml").by_baseline and not (folder / "kopt_task").exists()
    status, text = new(folder, *flags, "--reference", "baseline", "--force", "--task", "other.yaml")
    assert status == 0 and "not the reference" not in text


def test_kernel_that_reads_what_the_host_copies_to_a_symbol_is_refused(tmp_path: Path) -> None:
    """With zeros in place of the filter a verdict would be about another computation."""
    source = """__constant__ float taps[3];
__device__ float tap(int i) { return taps[i]; }
__global__ void blur(const float *x, float *y, int n) { y[threadIdx.x] = tap(0) * x[threadIdx.x]; }
__global__ void plain(const float *x, float *y, int n) { y[threadIdx.x] = x[threadIdx.x]; }
int main() {
    int n = 64; float *a, *b, h[3] = {1, 2, 3};
    cudaMemcpyToSymbol(taps, h, sizeof(h));
    cudaMalloc(&a, n * sizeof(float)); cudaMalloc(&b, n * sizeof(float));
    blur<<<1, 64>>>(a, b, n); plain<<<1, 64>>>(a, b, n);
}
"""
    folder = project(tmp_path, source)
    status, text = new(folder, "--no-check")
    assert status == 2 and "blur reads taps, which the program fills with cudaMemcpyToSymbol" \
        in text
    status, text = new(folder, "--no-check", "--entry", "plain")
    assert status == 0, text
