"""Every variant of the Triton examples is right on ragged shapes and compiles for its card."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.compile import kernel_resources, triton_aot
from harness.compile.kernel_resources import KernelResources
from harness.compile.place import Place
from harness.devices import inventory
from harness.evaluate.evaluate import evaluate
from harness.isolation import guard
from harness.search.space import knobs
from harness.settings import Settings, Trees
from harness.tasks.target import Target
from harness.tasks.task_file import load
from harness.verdict import Value
from tests.support.kernels.kernel_case import tree
from tests.support.paths import EXAMPLES

Config = dict[str, Value]
SMALL: Config = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 2}
GOOD: Config = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "NUM_WARPS": 8,
                "NUM_STAGES": 3}
MATMUL: dict[str, Config] = {
    "tiled": {},
    "persistent": {"PERSISTENT": 1, "FLATTEN": 1},
    "descriptor": {"DESCRIPTOR": 1},
    "descriptor, split": {"DESCRIPTOR": 1, "SPLIT": 1},
    "persistent descriptor": {"DESCRIPTOR": 1, "PERSISTENT": 1},
    "all of it": {"DESCRIPTOR": 1, "PERSISTENT": 1, "FLATTEN": 1, "SPLIT": 1, "NUM_STAGES": 4},
}
SOFTMAX: dict[str, Config] = {
    "three passes": {"NUM_STAGES": 2},
    "online": {"VARIANT": "online", "NUM_STAGES": 3},
    "whole": {"VARIANT": "whole", "CACHE": "streaming"},
    "persistent": {"VARIANT": "persistent", "NUM_STAGES": 2},
    "half narrow": {"VARIANT": "whole", "NARROW": 1, "WIDE_PER_THREAD": 128},
    "narrow": {"VARIANT": "whole", "NARROW": 2, "WIDE_PER_THREAD": 128},
    "half narrow persistent": {"VARIANT": "persistent", "NARROW": 1},
    "narrow persistent": {"VARIANT": "persistent", "NARROW": 2},
}
PAGED: dict[str, Config] = {
    "a head": {"NUM_STAGES": 2},
    "heads together": {"GROUPED": 1, "TILE": 32},
    "in parts": {"SPLITS": 4},
    "all of it": {"GROUPED": 1, "SPLITS": 8, "TILE": 32, "NUM_STAGES": 2},
}


def paged(seqs: int, mtp: int, heads: int, kv_heads: int, head_size: int, block_size: int,
          context: int) -> list[object]:
    """Return arguments of paged attention: shapes, bounded integers, and scalars."""
    query, cache = [seqs, mtp, heads, head_size], [9, kv_heads, block_size, head_size]
    tables = {"below": 9, "shape": [seqs, -(-context // block_size)]}
    return [query, cache, cache, tables, {"below": 16, "shape": [seqs]}, context, query]


RAGGED: dict[str, list[list[object]]] = {
    "matmul_triton": [[(150, 72), (72, 88), (150, 88)], [(101, 51), (51, 77), (101, 77)]],
    "softmax_triton": [[(13, 301), (13, 301)], [(12, 256), (12, 256)],
                       [(3, 33000), (3, 33000)]],
    "paged_attention_triton": [paged(2, 3, 6, 2, 20, 8, 45), paged(1, 1, 2, 2, 32, 16, 70)],
}
"""Shapes of every argument, by example; the first products suit the tensor memory accelerator."""
SIZES: dict[str, Config] = {"matmul_triton": SMALL,
                            "softmax_triton": {"BLOCK": 1024, "PER_THREAD": 16},
                            "paged_attention_triton": {"TILE": 16}}
VARIANTS: dict[str, dict[str, Config]] = {"matmul_triton": MATMUL, "softmax_triton": SOFTMAX,
                                          "paged_attention_triton": PAGED}


def source(example: str, config: Config) -> str:
    """Return the example with knobs set that meet its requirements."""
    text = knobs.read(EXAMPLES / example / "kernel.py")
    declared = knobs.find(text, language="triton")
    checked = knobs.check(declared, config, knobs.requirements(text, declared))
    assert not checked.faults and not checked.dropped
    return knobs.apply(text, config, language="triton")


CHILD = """
import json, sys
import torch
from harness.child.interpreter import interpret
from harness.child.run import load_python
interpret.install()
def made(one):
    if isinstance(one, dict):
        return torch.randint(one['below'], one['shape'], dtype=torch.int32)
    return one if isinstance(one, int) else torch.randn(one)
for folder, entry, cases in json.load(sys.stdin):
    call, exactly = (getattr(load_python.import_file(f'{folder}/{name}.py', folder), entry)
                     for name in ('kernel', 'reference'))
    for case in cases:
        given = [made(one) for one in case[:-1]]
        tensors = [one for one in given if isinstance(one, torch.Tensor)]
        kept = [one.clone() for one in tensors]
        size = torch.Size(case[-1]).numel()
        guarded = torch.full((size + 4096,), float('nan'))
        out = guarded[:size].view(case[-1])
        call(*given, out)
        wide = (one.double() if isinstance(one, torch.Tensor) and one.is_floating_point() else one
                for one in given)
        exact = exactly(*wide)
        assert guarded[size:].isnan().all() and all(map(torch.equal, tensors, kept))
        print(json.dumps(float((out.double() - exact).abs().max() / exact.abs().max())))
"""


@pytest.mark.slow
def test_every_variant_is_right_on_ragged_shapes(tmp_path: Path) -> None:
    """All run in one child process, since importing Triton takes longer than all of them."""
    jobs, names = [], []
    for example, variants in VARIANTS.items():
        for name, config in variants.items():
            folder = tree(tmp_path / example / name.replace(" ", "-"),
                          source(example, {**SIZES[example], **config}),
                          (EXAMPLES / example / "reference.py").read_text())
            jobs.append([folder, example.removesuffix("_triton"), RAGGED[example]])
            names += [f"{example}: {name}"] * len(RAGGED[example])
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(jobs), capture_output=True, text=True,
        timeout=300, check=False, cwd=EXAMPLES.parent,
        env=guard.clean_env({"TRITON_INTERPRET": "1"}, home=tmp_path))
    assert done.returncode == 0, done.stderr
    errors = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(errors) == len(names) == 44
    assert max(errors) < 1e-5, list(zip(names, errors, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("example", SIZES)
def test_harness_finds_the_examples_right(tmp_path: Path, example: str) -> None:
    """A whole evaluation: bfloat16 inputs, the audit and every class."""
    task = load(EXAMPLES / example / "task.yaml")
    variant = "persistent" if example == "softmax_triton" else "all of it"
    text = source(example, {**SIZES[example], **VARIANTS[example][variant]})
    candidate = tree(tmp_path / "tree", text, (EXAMPLES / example / "reference.py").read_text())
    verdict = evaluate(task, Trees(candidate=candidate, incumbent=str(EXAMPLES / example),
                                   reference=str(EXAMPLES / example)), inventory.find("cpu"),
                       Settings(scratch=str(tmp_path / "scratch"), distributions=("normal",)))
    assert verdict.valid and verdict.correct and not verdict.audit, verdict


def compiled(example: str, config: Config, folder: Path, *classes: str,
             ) -> tuple[Target, tuple[KernelResources, ...]]:
    task = load(EXAMPLES / example / "task.yaml")
    task = replace(task, classes=tuple(c for c in task.classes if c.name in classes))
    resources = triton_aot.inspect(
        task, Path(tree(folder / "tree", source(example, config))), "sm_90",
        Place(scratch=str(folder / "scratch"))).resources
    assert [kernel.config_class for kernel in resources] == list(classes)
    assert kernel_resources.all_unlaunchable(resources) == () and not any(
        kernel.error or kernel.spills for kernel in resources
    )
    return task, resources


@pytest.mark.slow
@pytest.mark.parametrize("name", MATMUL)
def test_products_run_on_warp_group_instructions(tmp_path: Path, name: str) -> None:
    _, [kernel] = compiled("matmul_triton", {**GOOD, **MATMUL[name]}, tmp_path, "square")
    assert kernel.matrix == "wgmma"
    assert (kernel.kernel == "descriptor_kernel") == ("descriptor" in name or "all" in name)
    tiles = 4096 // 128 * (4096 // 256)
    assert kernel.programs == (132 if "persistent" in name or "all" in name else tiles)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOFTMAX)
def test_rows_are_read_in_wide_loads(tmp_path: Path, name: str) -> None:
    sizes: Config = {"BLOCK": 4096, "PER_THREAD": 16}
    task, resources = compiled(
        "softmax_triton", {**sizes, **SOFTMAX[name]}, tmp_path, "tall", "widest"
    )
    assert {kernel.load_bytes for kernel in resources} == {16}
    if name in ("whole", "persistent"):
        assert [kernel.threads for kernel in resources] == [256, 1024]
    if name == "persistent":
        assert resources[1].shared_bytes > 32768 * 2  # with the row to be loaded next
    if name in ("half narrow", "narrow"):
        assert (resources[1].threads, resources[1].registers <= 128) == (
            256,
            True,
        )  # two programs fit on a multiprocessor
    assert len(task.classes) == 2


@pytest.mark.slow
def test_queries_of_a_group_are_multiplied_on_matrix_units(tmp_path: Path) -> None:
    sizes: Config = {"GROUPED": 1, "TILE": 64, "NUM_STAGES": 2}
    _, [kernel] = compiled("paged_attention_triton", sizes, tmp_path / "one", "single")
    assert (kernel.kernel, kernel.matrix, kernel.programs) == ("decode_kernel", "mma", 8)
    task = load(EXAMPLES / "paged_attention_triton" / "task.yaml")
    task = replace(task, classes=tuple(c for c in task.classes if c.name == "single"))
    text = source("paged_attention_triton", {**sizes, "SPLITS": 16})
    resources = triton_aot.inspect(
        task, Path(tree(tmp_path / "parts", text)), "sm_90",
        Place(scratch=str(tmp_path / "scratch"))).resources
    assert [(kernel.kernel, kernel.programs) for kernel in resources] == [
        ("decode_kernel", 8 * 16), ("combine_kernel", 32)]


def test_configurations_that_do_not_fit_a_card_are_excluded() -> None:
    text = knobs.read(EXAMPLES / "matmul_triton" / "kernel.py")
    declared = knobs.find(text, language="triton")
    required = knobs.requirements(text, declared)
    for change in ({"NUM_STAGES": 5}, {"BLOCK_M": 256}, {"NUM_WARPS": 4}, {"FLATTEN": 1},
                   {"SPLIT": 1}):
        assert knobs.check(declared, {**GOOD, **change}, required).faults, change
    assert not knobs.check(declared, {**GOOD, "NUM_STAGES": 4}, required).faults
