"""Kernels are compiled ahead of time for absent cards, and their limits follow from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.compile import triton_aot
from harness.compile.kernel_resources import KernelResources
from harness.compile.place import Place
from harness.devices import datasheets
from harness.errors import InputError
from harness.search.space import knobs
from harness.tasks.target import Arg, Target
from harness.tasks.task_file import load
from harness.verdict import Row
from tests.support.kernels.kernel_case import DOUBLE, HEAD, REFERENCE, target, tree
from tests.support.paths import EXAMPLES
from tests.support.programs import shared_zygotes

MODULE = DOUBLE + """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1 << 17, 1 << 17)

    def forward(self, x):
        x = self.layer(x)
        out = torch.empty_like(x)
        double(x, out)
        return out


def product(x):
    x = x @ x.new_empty(1 << 17, 1 << 17)
    out = torch.empty_like(x)
    double(x, out)
    return out
"""
CALL = """def call(module, x):
    return module.Model().to(x.device)(x)
"""


def inspect(folder: Path, source: str, *names: str, task: Target | None = None,
            ) -> tuple[KernelResources, ...]:
    return shared_zygotes.resources(task or target(), Path(tree(folder / "tree", source)),
                                    names or ["sm_90"], folder / "scratch")


def test_kernels_compile_for_every_architecture(tmp_path: Path) -> None:
    names = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx90a", "gfx942", "gfx950")
    compiled = inspect(tmp_path, DOUBLE, *names)
    assert [kernel.arch for kernel in compiled] == list(names)
    for kernel in compiled:
        assert (
            kernel.kernel == "double_kernel" and kernel.config_class == "odd" and not kernel.error
        )
        assert kernel.threads == (128 if kernel.arch.startswith("sm") else 256)
        assert kernel.registers and kernel.spills == 0 and kernel.fits
        assert kernel.programs == 6 and kernel.occupancy == 1.0
        assert kernel.load_bytes == 4


@pytest.mark.parametrize(("entry", "adapter"), [("Model", "call.py:call"), ("product", None)])
def test_python_is_compiled_without_memory_for_its_tensors(tmp_path: Path, entry: str,
                                                           adapter: str | None) -> None:
    """The weights take 64 GiB, and the product of matrices would take minutes."""
    task = target(language="python", entry=entry, adapter=adapter, returns=True,
                  args=(Arg(name="x", dtype="float32", shape=("n", 1 << 17)),))
    folder = tmp_path / "tree"
    tree(folder, MODULE)
    (folder / "call.py").write_text(CALL)
    (kernel,) = shared_zygotes.resources(task, folder, ["sm_90"], tmp_path / "scratch")
    assert kernel.kernel == "double_kernel" and not kernel.error and kernel.registers
    assert kernel.programs == 331 * (1 << 17) // 64


@pytest.mark.parametrize("name", ["matmul_triton", "softmax_triton"])
def test_examples_compile_for_every_architecture(tmp_path: Path, name: str,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_aot, "MAX_CONFIGS", 1)
    task = load(EXAMPLES / name / "task.yaml")
    task = replace(task, classes=tuple(c for c in task.classes if c.name == "square"))
    names = ["sm_80", "sm_100", "sm_120", "gfx90a", "gfx950"]
    compiled = shared_zygotes.resources(task, EXAMPLES / name, names, tmp_path)
    assert [kernel.arch for kernel in compiled] == names
    for kernel in compiled:
        assert not kernel.error and kernel.fits and kernel.registers
        assert kernel.spills is not None and kernel.spills <= 8  # ptxas spills a word on sm_120
        assert (
            kernel.occupancy
            and kernel.grid
            and kernel.programs == kernel.grid[0]
            and kernel.sections
        )
        loops = [part for part in kernel.sections if part.loop and part.load_bytes]
        rest = kernel.sections[-1]
        assert not rest.loop and rest.instructions > 0
        if name == "softmax_triton":
            assert not kernel.matrix and loops and not any(part.flops for part in kernel.sections)
        else:
            assert (
                kernel.matrix == ("mfma" if kernel.arch.startswith("gfx") else kernel.matrix) != ""
            )
            [turn] = loops
            assert turn.load_bytes * kernel.threads == 2 * 2 * 32**2
            assert turn.flops in (2 * 32**3, 4 * 2 * 32**3)  # each of AMD's four waves does all


def test_every_class_and_config_is_compiled(tmp_path: Path) -> None:
    example = EXAMPLES / "matmul_triton"
    task = load(example / "task.yaml")
    compiled = shared_zygotes.resources(task, example, ["sm_90"], tmp_path)
    assert [kernel.config_class for kernel in compiled] == [
        "square",
        "large",
        "wide",
        "skinny",
        "odd",
    ]
    assert {kernel.matrix for kernel in compiled} == {"mma"}
    assert {kernel.load_bytes for kernel in compiled if kernel.config_class == "odd"} == {
        2
    }  # not aligned
    limiters = {limit.limiter for limit in triton_aot.bottlenecks_of(compiled)}
    assert "matrix instructions" in limiters and "narrow loads" in limiters

    source = knobs.apply(knobs.read(example / "kernel.py"),
                         {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, language="triton")
    big = inspect(tmp_path, source, task=Target(**{**{
        f: getattr(task, f) for f in task.__dataclass_fields__}, "classes": task.classes[:1]}))
    assert {kernel.matrix for kernel in big} == {"wgmma"}
    assert all(kernel.shared_bytes > 60_000 and (kernel.occupancy or 1) < 0.5 for kernel in big)


@pytest.mark.slow  # test_launch_limits compiles the same kernel
def test_too_much_shared_memory_is_reported(tmp_path: Path) -> None:
    task = load(EXAMPLES / "matmul_triton" / "task.yaml")
    source = knobs.read(EXAMPLES / "matmul_triton" / "kernel.py")
    source = knobs.apply(source, {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128, "NUM_WARPS": 8,
                                  "NUM_STAGES": 3}, language="triton")
    classes = tuple(c for c in task.classes if c.name == "square")
    compiled = inspect(tmp_path, source, task=Target(**{**{
        f: getattr(task, f) for f in task.__dataclass_fields__}, "classes": classes}))
    assert compiled[0].shared_bytes > 232_448 and not compiled[0].fits
    first = triton_aot.bottlenecks_of(compiled)[0]
    assert first.limiter == "shared memory" and "232448" in first.detail
    assert first.value == compiled[0].shared_bytes and first.config_class == "square"


def test_spills_are_reported(tmp_path: Path) -> None:
    source = DOUBLE.replace("64", "4096").replace("(x, out, n)\n", "(x, out, n, num_warps=1, "
                                                  "maxnreg=32)\n").replace(
        "    tl.store(out + at, 2 * tl.load(x + at, mask=at < n)",
        "    v = tl.load(x + at, mask=at < n)\n    tl.store(out + at, v * tl.sum(tl.exp(v))")
    compiled = inspect(tmp_path, source)
    assert (compiled[0].spills or 0) > 0
    assert triton_aot.bottlenecks_of(compiled)[0].limiter == "register spills"


FAULTS = {
    "no kernel": (HEAD + "def double(x, out):\n    out.copy_(2 * x)\n", "launches no Triton"),
    "host raises": (HEAD + "def double(x, out):\n    assert x.is_cuda, 'not on a GPU'\n",
                    "not on a GPU"),
    "leaves": ("import os\nos._exit(3)\n", "exited with 3"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_error_of_an_uncompilable_target_states_why(tmp_path: Path, name: str) -> None:
    source, reason = FAULTS[name]
    with pytest.raises(triton_aot.AotError) as raised:
        inspect(tmp_path, source)
    assert reason in raised.value.what


def test_compile_error_is_reported_by_class(tmp_path: Path) -> None:
    compiled = inspect(tmp_path, DOUBLE.replace("2 * tl.load", "no_such_name * tl.load"))
    assert "no_such_name" in compiled[0].error
    assert triton_aot.bottlenecks_of(compiled)[0].limiter == "does not compile"
    with pytest.raises(InputError, match="sm_42"):
        triton_aot.inspect(target(), tmp_path, "sm_42", Place(scratch=str(tmp_path)))


def resources(**fields: Any) -> KernelResources:
    given: dict[str, Any] = {"kernel": "k", "config_class": "square", "arch": "sm_90",
                             "registers": 32, "spills": 0, "threads": 128, "programs": 4096,
                             "load_bytes": 16, "occupancy": 1.0}
    return KernelResources(**(given | fields))


def test_limits_are_ranked_and_shared_by_all_configs() -> None:
    spilled = resources(config="a", spills=64)
    assert [x.limiter for x in triton_aot.bottlenecks_of([spilled])] == ["register spills"]
    assert triton_aot.bottlenecks_of([spilled, resources(config="b")]) == ()
    both = [resources(config_class="tall", load_bytes=2, programs=10), spilled]
    assert [x.limiter for x in triton_aot.bottlenecks_of(both)] == [
        "register spills", "narrow loads", "idle multiprocessors"]
    near = Row(config_class="tall", correct=True, latency_us=1.0, floor_us=0.95,
               pct_of_roofline=95.0)
    assert [x.config_class for x in triton_aot.bottlenecks_of(both, [near])] == ["square"]


@pytest.mark.parametrize(("name", "registers", "shared", "threads", "share", "limiter"), [
    ("sm_90", 32, 0, 256, 1.0, ""),
    ("sm_90", 128, 0, 256, 0.25, "registers"),
    ("sm_90", 255, 0, 512, 0.0, "registers"),
    ("sm_90", 64, 100 << 10, 128, 0.125, "shared memory"),
    ("sm_90", 16, 0, 32, 0.5, "blocks"),
    ("sm_90", 16, 232_449, 128, 0.0, "shared memory"),
    ("sm_80", 40, 0, 128, 0.75, "registers"),
    ("sm_120", 32, 0, 1024, 2 / 3, "warps"),
])
def test_occupancy_has_its_limiter(name: str, registers: int, shared: int, threads: int,
                                   share: float, limiter: str) -> None:
    known = datasheets.find_arch(name)
    assert known is not None
    fit = datasheets.occupancy(known, registers=registers, shared_bytes=shared, threads=threads)
    assert fit is not None
    assert fit == (pytest.approx(share), limiter)


@pytest.mark.parametrize(("waves", "shared", "threads", "share", "limiter"), [
    (8, 0, 256, 1.0, ""), (4, 0, 256, 0.5, "registers"), (None, 0, 256, None, ""),
    (8, 32768, 256, 0.25, "shared memory"), (2, 32768, 512, 0.25, "registers"),
    (8, 65537, 256, 0.0, "shared memory"),
])
def test_occupancy_of_amd_counts_the_requested_waves(waves: int | None, shared: int, threads: int,
                                                     share: float | None, limiter: str) -> None:
    known = datasheets.find_arch("gfx942")
    assert known is not None
    fit = datasheets.occupancy(
        known, registers=None, shared_bytes=shared, threads=threads, waves=waves
    )
    assert fit == (None if share is None else (share, limiter))


@pytest.mark.slow
def test_reference_is_not_run(tmp_path: Path) -> None:
    assert REFERENCE  # not used: a tree with a broken reference compiles
    folder = Path(tree(tmp_path / "tree", DOUBLE, "raise SystemExit\n"))
    assert triton_aot.inspect(target(), folder, "sm_90",
                              Place(scratch=str(tmp_path / "scratch"))).resources
