"""What a card cannot launch is told before any launch, and what nobody can tell is no reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.compile import launch_limits, triton_aot
from harness.compile.triton_aot import KernelResources
from harness.devices import architectures as archs
from harness.search.space import knobs
from harness.target import load
from tests.support import shared_zygotes
from tests.support.kernel_case import DOUBLE, HEAD, target, tree
from tests.support.paths import EXAMPLES


@pytest.fixture(autouse=True)
def one_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile in forks of one process: `test_aot` sees that fresh ones do it too."""
    monkeypatch.setattr(triton_aot, "inspect", shared_zygotes.inspect)


def resources(**fields: Any) -> KernelResources:
    given: dict[str, Any] = {"kernel": "k", "config_class": "square", "arch": "sm_90",
                             "registers": 64, "spills": 0, "threads": 128, "grid": (64, 1, 1)}
    return KernelResources(**(given | fields))


@pytest.mark.parametrize(("name", "fields", "said"), [
    ("sm_90", {}, ()),
    ("sm_90", {"threads": 1024, "registers": 64, "shared_bytes": 232_448}, ()),
    ("sm_90", {"threads": 2048, "registers": 32}, ("2048 threads", "allows 1024")),
    ("sm_90", {"threads": 0}, ("0 threads", "warps of 32")),
    ("sm_90", {"threads": 48}, ("48 threads", "warps of 32")),
    ("gfx942", {"threads": 96}, ("96 threads", "warps of 64")),
    ("sm_90", {"shared_bytes": 232_449}, ("232449", "232448")),
    ("sm_80", {"shared_bytes": 167_936}, ("167936", "166912")),
    ("sm_120", {"shared_bytes": 102_400}, ("102400", "101376")),
    ("gfx942", {"shared_bytes": 65_537}, ("65537", "65536")),
    ("gfx950", {"shared_bytes": 163_840}, ()),
    ("sm_90", {"registers": 256}, ("256 registers a thread", "255")),
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
    ("gfx942", {"grid": (1 << 25, 1, 1)}, ("33554432 blocks", "threads along x")),
    ("sm_90", {"grid": None}, ()),
    ("sm_90", {"grid": (0, 1, 1)}, ()),
    ("sm_80", {"blocks_per_cluster": 2}, ("clusters of 2", "none")),
    ("sm_90", {"blocks_per_cluster": 16}, ()),
    ("sm_90", {"blocks_per_cluster": 32}, ("clusters of 32", "16")),
    ("sm_90", {"error": "no such name"}, ("does not compile", "no such name")),
])
def test_the_limits(name: str, fields: dict[str, Any], said: tuple[str, ...]) -> None:
    arch = archs.find(name)
    assert arch is not None
    found = launch_limits.reasons(arch, resources(arch=name, **fields))
    assert len(found) == (1 if said else 0)
    assert all(word in found[0] for word in said)


def test_only_what_holds_for_all_configs_of_a_kernel_is_a_reason() -> None:
    big, small = resources(config="a", shared_bytes=393_216), resources(config="b")
    assert launch_limits.of_all([big, small]) == ()
    both = launch_limits.of_all([big, replace(big, config_class="odd"), small])
    assert len(both) == 1 and both[0].endswith("(class odd)")
    first = launch_limits.of_all([big, replace(big, config_class="odd")])
    assert len(first) == 1 and first[0].endswith("(class square, odd)") and "393216" in first[0]


@pytest.mark.parametrize("fields", [{"error": "?"}, {"caught": True}, {"configs_left": 2}])
def test_what_cannot_be_told_is_no_reason(fields: dict[str, Any]) -> None:
    assert launch_limits.of_all([resources(shared_bytes=393_216, **fields)]) == ()
    assert launch_limits.of_all([resources(arch="sm_42", shared_bytes=393_216)]) == ()


def matmul(**sizes: knobs.Value) -> str:
    return knobs.apply(knobs.read(EXAMPLES / "matmul_triton" / "kernel.py"), sizes,
                       language="triton")


BIG: dict[str, knobs.Value] = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128, "NUM_WARPS": 8,
                               "NUM_STAGES": 3}


def test_a_config_of_393216_bytes_is_found_before_any_launch(tmp_path: Path) -> None:
    task = load(EXAMPLES / "matmul_triton" / "task.yaml")
    task = replace(task, classes=task.classes[:2])
    folder = Path(tree(tmp_path / "tree", matmul(**BIG)))
    found = launch_limits.check(task, folder, "sm_90", tmp_path / "scratch")
    assert len(found) == 1
    assert "needs 393216 bytes of shared memory a block, sm_90 gives at most 232448" in found[0]
    assert "matmul_kernel" in found[0] and "(class square, large)" in found[0]


@pytest.mark.slow
def test_autotune_with_one_config_that_fits_can_be_launched(tmp_path: Path) -> None:
    task = load(EXAMPLES / "matmul_triton" / "task.yaml")
    task = replace(task, classes=task.classes[:1])
    source = matmul(BLOCK_M=128, BLOCK_N=256, BLOCK_K=64).replace(
        "@triton.jit\ndef matmul_kernel", """@triton.autotune(configs=[
    triton.Config({}, num_warps=8, num_stages=6), triton.Config({}, num_warps=8, num_stages=3),
], key=["m"])
@triton.jit
def matmul_kernel""").replace("num_warps=NUM_WARPS,", "").replace("num_stages=NUM_STAGES", "")
    folder = Path(tree(tmp_path / "tree", source))
    assert launch_limits.check(task, folder, "sm_90", tmp_path / "scratch") == ()
    alone = launch_limits.check(task, folder, "sm_90", tmp_path / "scratch", max_configs=1)
    assert alone == ()  # the other configs were not tried


CATCHES = DOUBLE.replace("    double_kernel[(triton.cdiv(n, 64),)](x, out, n)\n", """    try:
        double_kernel[(1,)](x, out, n, num_warps=64)
    except triton.runtime.errors.OutOfResources:
        double_kernel[(triton.cdiv(n, 64),)](x, out, n)
""")


@pytest.mark.parametrize(("source", "said"), [
    (DOUBLE.replace("(x, out, n)\n", "(x, out, n, num_warps=64)\n"), 1),
    (CATCHES, 0),
    (HEAD + "def double(x, out):\n    assert x.is_cuda\n", 0),
    (HEAD + "def double(x, out):\n    out.copy_(2 * x)\n", 0),
    (DOUBLE.replace("2 * tl.load", "no_such_name * tl.load"), 0),
    ("def double(:\n", 0),
], ids=["threads", "catches", "needs a GPU", "no kernel", "broken", "no Python"])
def test_sources(tmp_path: Path, source: str, said: int) -> None:
    folder = Path(tree(tmp_path / "tree", source))
    assert len(launch_limits.check(target(), folder, "sm_90", tmp_path / "scratch")) == said


def test_other_languages_and_cards_are_left_alone(tmp_path: Path) -> None:
    assert launch_limits.check(target(language="c"), tmp_path, "sm_90", tmp_path) == ()
    assert launch_limits.check(target(), tmp_path, "sm_42", tmp_path) == ()
