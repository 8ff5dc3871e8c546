"""A CUDA block's thread count becomes a knob, in the task's launch and in the source."""

from __future__ import annotations

import pytest

from engine.discovery.new.launch_constant import with_block_constant
from harness.search.space import knob_proposals, knobs
from harness.tasks.target import Launch

KERNEL = """extern "C" __global__ void sums(const float *x, float *out, int rows, int cols) {}
"""
LITERAL = Launch(grid=("(cols + 255) // 256",), block=(256,))
FOLLOWING = Launch(grid=("(cols + (SUMS_BLOCK - 1)) // SUMS_BLOCK",), block=("SUMS_BLOCK",),
                   defaults={"SUMS_BLOCK": 256})


def launcher(launch: str) -> str:
    return f"{KERNEL}void run(const float *x, float *out, int rows, int cols) {{\n{launch}\n}}\n"


@pytest.mark.parametrize(("source", "expected"), [
    (KERNEL, ""),
    (launcher("    sums<<<(cols + 255) / 256, 256>>>(x, out, rows, cols);"),
     "sums<<<(cols + (SUMS_BLOCK - 1)) / SUMS_BLOCK, SUMS_BLOCK>>>(x"),
    (launcher("    int threads = 256, blocks = (cols + threads - 1) / threads;\n"
              "    sums<<<blocks, threads, 0, stream>>>(x, out, rows, cols);"),
     "int threads = SUMS_BLOCK, blocks = (cols + threads - 1) / threads;"),
    (launcher("    dim3 block(256), grid((cols + block.x - 1) / block.x);\n"
              "    sums<<<grid, block>>>(x, out, rows, cols);"), "dim3 block(SUMS_BLOCK), g")])
def test_knob_changes_the_launch_of_the_task_and_of_the_source(source: str, expected: str) -> None:
    launch = with_block_constant(LITERAL, "sums", source)
    assert launch == FOLLOWING
    proposals = knob_proposals.propose(source, "cuda", launch.defaults)
    assert [(each.name, each.value, each.choices) for each in proposals] == [
        ("SUMS_BLOCK", 256, (32, 64, 128, 256, 512, 1024))]
    declared = knob_proposals.declare(source, proposals, "cuda")
    assert expected in declared
    changed = knobs.apply(declared, {"SUMS_BLOCK": 64}, language="cuda")
    inlined = knob_proposals.inlined(changed)
    assert inlined == changed.replace(changed.partition("\n")[0], "#define SUMS_BLOCK 64"), \
        "the task's launch reads the constant"


@pytest.mark.parametrize(("launch", "source"), [
    (Launch(grid=("cols // 8",), block=(32, 8)), KERNEL),
    (Launch(grid=("rows",), block=("TILE",)), "#define TILE 64\n" + KERNEL),
    (Launch(grid=("rows",), block=(16,)), KERNEL),
    (LITERAL, launcher("    sums<<<(cols + 255) / 256, threads()>>>(x, out, rows, cols);")),
    (LITERAL, launcher("    sums<<<blocks, 256>>>(x, out, 1, cols);\n"
                       "    sums<<<blocks, 128>>>(x, out, 2, cols);"))])
def test_launch_that_no_constant_can_describe_is_unchanged(launch: Launch, source: str) -> None:
    assert with_block_constant(launch, "sums", source) == launch
    assert not [each for each in knob_proposals.propose(source, "cuda", launch.defaults)
                if "BLOCK" in each.name]


def test_constant_of_the_source_replaces_the_default() -> None:
    assert FOLLOWING.sizes({"cols": 512}) == (2, 1, 1, 256, 1, 1, 0)
    assert FOLLOWING.sizes({"cols": 512, "SUMS_BLOCK": 32}) == (16, 1, 1, 32, 1, 1, 0)
