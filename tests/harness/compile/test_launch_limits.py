"""A kernel that cannot be launched is refused before any launch; one with unknown needs may run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.compile import kernel_resources, triton_aot
from harness.compile.kernel_resources import KernelResources
from harness.compile.place import Place
from harness.search.space import knobs
from harness.tasks.target import Target
from harness.tasks.task_file import load
from harness.verdict import Value
from tests.support.kernels.kernel_case import DOUBLE, target, tree
from tests.support.paths import EXAMPLES
from tests.support.programs import shared_zygotes


@pytest.fixture(autouse=True)
def one_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile in forks of one process; `test_triton_aot` covers fresh processes."""
    monkeypatch.setattr(triton_aot, "inspect", shared_zygotes.inspect)


def resources(**fields: Any) -> KernelResources:
    given: dict[str, Any] = {"kernel": "k", "config_class": "square", "arch": "sm_90",
                             "registers": 64, "spills": 0, "threads": 128, "grid": (64, 1, 1)}
    return KernelResources(**(given | fields))


@pytest.mark.parametrize(("name", "fields", "words"), [
    ("sm_90", {}, ()),
    ("sm_90", {"threads": 1024, "registers": 64, "shared_bytes": 232_448}, ()),
    ("sm_90", {"threads": 2048, "registers": 32}, ("2048 threads", "allows 1024")),
    ("sm_90", {"threads": 0}, ("0 threads", "warp size 32")),
    ("sm_90", {"threads": 48}, ("48 threads", "warp size 32")),
    ("gfx942", {"threads": 96}, ("96 threads", "warp size 64")),
    ("sm_90", {"shared_bytes": 232_449}, ("232449", "232448")),
    ("sm_80", {"shared_bytes": 167_936}, ("167936", "166912")),
    ("sm_120", {"shared_bytes": 102_400}, ("102400", "101376")),
    ("gfx942", {"shared_bytes": 65_537}, ("65537", "65536")),
    ("gfx950", {"shared_bytes": 163_840}, ()),
    ("sm_90", {"registers": 256}, ("256 registers per thread", "255")),
    ("sm_90", {"registers": 65, "threads": 1024}, ("65 registers", "holds 28", "has 32")),
    ("sm_90", {"registers": 255, "threads": 256}, ()),
    ("sm_90", {"registers": 255, "threads": 512}, ("255 registers", "holds 8", "has 16")),
    ("gfx942", {"registers": 256, "threads": 512}, ()),
    ("gfx942", {"registers": 264, "threads": 512}, ("264 registers", "holds 4", "has 8")),
    ("sm_90", {"registers": None}, ()),
    ("sm_90", {"grid": (2**31 - 1, 65535, 65535)}, ()),
    ("sm_90", {"grid": (2**31,)}, ("along x", "2147483647")),
    ("sm_90", {"grid": (1, 65536)}, ("65536 blocks along y", "65535")),
    ("sm_90", {"grid": (1, 1, 70_000)}, ("along z", "65535")),
    ("gfx942", {"grid": (1, 70_000)}, ("70000 blocks along y", "65536")),
    ("gfx942", {"grid": (1 << 25, 1, 1)}, ("33554432 blocks", "threads along x")),
    ("sm_90", {"grid": None}, ()),
    ("sm_90", {"grid": (0, 1, 1)}, ()),
    ("sm_80", {"blocks_per_cluster": 2}, ("clusters of 2", "none")),
    ("sm_90", {"blocks_per_cluster": 16}, ()),
    ("sm_90", {"blocks_per_cluster": 32}, ("clusters of 32", "16")),
    ("sm_90", {"error": "no such name"}, ("does not compile", "no such name")),
])
def test_each_limit_of_an_architecture_is_checked(name: str, fields: dict[str, Any],
                                                  words: tuple[str, ...]) -> None:
    found = kernel_resources.unlaunchable(resources(arch=name, **fields))
    assert len(found) == (1 if words else 0)
    assert all(word in found[0] for word in words)


def test_kernel_is_refused_only_if_no_config_fits() -> None:
    big, small = resources(config="a", shared_bytes=393_216), resources(config="b")
    assert kernel_resources.all_unlaunchable([big, small]) == ()
    both = kernel_resources.all_unlaunchable([big, replace(big, config_class="odd"), small])
    assert len(both) == 1 and both[0].endswith("(class odd)")
    first = kernel_resources.all_unlaunchable([big, replace(big, config_class="odd")])
    assert len(first) == 1 and first[0].endswith("(class square, odd)") and "393216" in first[0]


@pytest.mark.parametrize("fields", [{"error": "?"}, {"caught": True}, {"configs_left": 2}])
def test_unknown_resources_are_no_reason_to_refuse(fields: dict[str, Any]) -> None:
    assert kernel_resources.all_unlaunchable([resources(shared_bytes=393_216, **fields)]) == ()
    assert kernel_resources.all_unlaunchable([resources(arch="sm_42", shared_bytes=393_216)]) == ()


def matmul(**sizes: Value) -> str:
    return knobs.apply(knobs.read(EXAMPLES / "matmul_triton" / "kernel.py"), sizes,
                       language="triton")


def refusals(task: Target, folder: Path) -> tuple[str, ...]:
    """Return why an H200 cannot launch a project's kernels."""
    inspection = triton_aot.inspect(
        task, folder, "sm_90", Place(scratch=str(folder.parent / "scratch")))
    return kernel_resources.all_unlaunchable(inspection.resources)


BIG: dict[str, Value] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128, "NUM_WARPS": 8,
                               "NUM_STAGES": 3}


def test_too_much_shared_memory_is_found_before_any_launch(tmp_path: Path) -> None:
    task = load(EXAMPLES / "matmul_triton" / "task.yaml")
    task = replace(task, classes=task.classes[:2])
    folder = Path(tree(tmp_path / "tree", matmul(**BIG)))
    found = refusals(task, folder)
    assert len(found) == 1
    assert "needs 393216 bytes of shared memory per block, sm_90 has at most 232448" in found[0]
    assert "matmul_kernel" in found[0] and "(class square, large)" in found[0]


@pytest.mark.slow
def test_autotune_with_one_fitting_config_can_be_launched(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = load(EXAMPLES / "matmul_triton" / "task.yaml")
    task = replace(task, classes=task.classes[:1])
    source = matmul(BLOCK_M=128, BLOCK_N=256, BLOCK_K=64).replace(
        "@triton.jit\ndef matmul_kernel", """@triton.autotune(configs=[
    triton.Config({}, num_warps=8, num_stages=6), triton.Config({}, num_warps=8, num_stages=3),
], key=["m"])
@triton.jit
def matmul_kernel""").replace("num_warps=NUM_WARPS,", "").replace("num_stages=NUM_STAGES", "")
    folder = Path(tree(tmp_path / "tree", source))
    assert refusals(task, folder) == ()
    monkeypatch.setattr(triton_aot, "MAX_CONFIGS", 1)
    assert refusals(task, folder) == ()  # since the other config was not tried


CATCHES = DOUBLE.replace("    double_kernel[(triton.cdiv(n, 64),)](x, out, n)\n", """    try:
        double_kernel[(1,)](x, out, n, num_warps=64)
    except triton.runtime.errors.OutOfResources:
        double_kernel[(triton.cdiv(n, 64),)](x, out, n)
""")


@pytest.mark.parametrize(("source", "count"), [
    (DOUBLE.replace("(x, out, n)\n", "(x, out, n, num_warps=64)\n"), 1),
    (CATCHES, 0),
    (DOUBLE.replace("2 * tl.load", "no_such_name * tl.load"), 0),
], ids=["threads", "catches", "broken"])
def test_target_is_refused_unless_the_failure_is_caught_or_is_a_compile_error(
        tmp_path: Path, source: str, count: int) -> None:
    folder = Path(tree(tmp_path / "tree", source))
    assert len(refusals(target(), folder)) == count
