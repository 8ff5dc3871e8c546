"""kopt proposes knobs for a source without any, declares them in it, and removes them again."""

from __future__ import annotations

import pytest

from harness.search.space import knob_proposals, knobs

SOURCE = '''\
"""Kernels."""
import triton
import triton.language as tl


@triton.jit
def _norm(x, n, BLOCK: tl.constexpr, UNROLL: tl.constexpr = 2):
    pass


def settings(n):
    return triton.next_power_of_2(n), 4


def norm(x):
    BLOCK, warps = settings(x.shape[1])
    ROWS_PER_TILE = 1
    TILE = 16
    _norm[(x.shape[0],)](x, x.shape[1], BLOCK=BLOCK, num_warps=warps if warps else 1,
                         num_stages=2, GROUP_M=TILE)
'''
PRODUCT = '''\
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def product(x, y, out, BM: tl.constexpr, BN: tl.constexpr, BLOCK_K: tl.constexpr):
    tl.dot(x, y)


def multiply(x, y, out):
    BM, BN = TILES
    product[(1,)](x, y, out, BM=BM, BN=BN, BLOCK_K=BLOCK)
'''
C = "#define TILE 32\n#define NAME 7\nconstexpr int BLOCK_M = 64;\nint BLOCK = 4;\n"


def declared() -> str:
    return knob_proposals.declare(SOURCE, knob_proposals.propose(SOURCE, "triton"), "triton")


@pytest.mark.parametrize(("launch", "body", "choices"), [
    ("BLOCK=128", "pass", (32, 64, 128, 256, 512, 1024, 2048, 4096)),
    ("BLOCK=128, TILE=64", "pass", (32, 64, 128, 256, 512)),
    ("BLOCK=128", "tl.dot(x, x)", (32, 64, 128, 256, 512)),
    ("BLOCK=16", "pass", (4, 8, 16, 32, 64))])
def test_only_size_of_a_kernel_without_a_product_has_large_choices(
        launch: str, body: str, choices: tuple[int, ...]) -> None:
    source = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef kernel(" \
        f"x, BLOCK: tl.constexpr, TILE: tl.constexpr = T):\n    {body}\n\n\n" \
        f"def run(x):\n    kernel[(1,)](x, {launch}, num_warps=4)\n"
    proposals = knob_proposals.propose(source, "triton")
    assert next(each for each in proposals if each.name == "KERNEL_BLOCK").choices == choices


def test_launch_constants_defaults_and_helpers_become_knobs() -> None:
    found = {each.name: each for each in knobs.find(declared(), language="triton")}
    assert {name: each.value for name, each in found.items()} == {
        "NORM_UNROLL": 2, "NORM_GROUP_M": 16, "NORM_BLOCK": 0, "NORM_NUM_WARPS": 0,
        "NORM_NUM_STAGES": 2}
    text = declared()
    assert "BLOCK=NORM_BLOCK or BLOCK, num_warps=NORM_NUM_WARPS or (warps if warps else 1)" in text
    assert "TILE = NORM_GROUP_M\n" in text and "UNROLL: tl.constexpr = NORM_UNROLL)" in text
    assert text.index("NORM_UNROLL = 2") < text.index("@triton.jit")
    compile(text, "norm.py", "exec")


@pytest.mark.parametrize("launched", [
    "_norm", "kernels._norm", "wrap_triton(_norm)", "KERNELS['_norm']", "self.jits['_norm', 0]"])
def test_knob_is_named_after_the_kernel_in_whatever_expression_it_is_launched(
        launched: str) -> None:
    source = SOURCE.replace("_norm[(x.shape[0],)]", f"{launched}[(x.shape[0],)]")
    proposals = knob_proposals.propose(source, "triton")
    declared = knob_proposals.declare(source, proposals, "triton")
    assert {"NORM_BLOCK", "NORM_NUM_WARPS"} <= {
        each.name for each in knobs.find(declared, language="triton")}


def test_inlining_unchanged_values_restores_the_source() -> None:
    assert ast_of(knob_proposals.inlined(declared())) == ast_of(SOURCE)


def test_inlining_writes_chosen_values() -> None:
    text = knobs.apply(declared(), {"NORM_BLOCK": 256, "NORM_NUM_STAGES": 3}, language="triton")
    inlined = knob_proposals.inlined(text)
    assert "BLOCK=256, num_warps=(warps if warps else 1)" in inlined or \
        "BLOCK=256, num_warps=warps if warps else 1" in inlined
    assert "num_stages=3" in inlined and "NORM_" not in inlined


def test_constants_of_a_tuple_and_of_the_module_become_knobs() -> None:
    source = PRODUCT.replace("TILES", "64, 32")
    proposed = {each.name: each for each in knob_proposals.propose(source, "triton")}
    assert {name: each.value for name, each in proposed.items()} == {
        "PRODUCT_BM": 64, "PRODUCT_BN": 32, "PRODUCT_BLOCK_K": 128}
    text = knob_proposals.declare(source, tuple(proposed.values()), "triton")
    assert "    BM, BN = PRODUCT_BM, PRODUCT_BN\n" in text and "BLOCK = PRODUCT_BLOCK_K\n" in text
    compile(text, "product.py", "exec")


def test_knobs_that_override_the_tiles_of_a_product_offer_small_values() -> None:
    """With a tile of 4096, compiling takes minutes."""
    proposed = knob_proposals.propose(PRODUCT.replace("TILES", "settings(x)"), "triton")
    assert {each.name: each.choices for each in proposed if not each.value} == {
        name: (0, 16, 32, 64, 128, 256) for name in ("PRODUCT_BM", "PRODUCT_BN")}


@pytest.mark.parametrize(("before", "grid", "value", "declared"), [
    ("", "(triton.cdiv(n, 128),)", "128", "(triton.cdiv(n, ADD_BLOCK),)"),
    ("", "lambda meta: ((n + 127) // 128,)", "128",
     "lambda meta: ((n + (ADD_BLOCK - 1)) // ADD_BLOCK,)"),
    ("size = triton.next_power_of_2(n)", "((n + size - 1) // size,)", "size",
     "size = ADD_BLOCK or triton.next_power_of_2(n)"),
    ("", "(triton.cdiv(n, settings.size), 128)", "settings.size",
     "(triton.cdiv(n, (ADD_BLOCK or settings.size)), 128)"),
    ("", "(128,)", "128", "add[(128,)](x, n, BLOCK=ADD_BLOCK)")])
def test_size_of_a_block_is_also_set_where_the_grid_needs_it(before: str, grid: str, value: str,
                                                            declared: str) -> None:
    """A smaller block would leave values out."""
    source = "import triton\n\n\ndef run(x, n):\n" + (f"    {before}\n" if before else "") + \
        f"    add[{grid}](x, n, BLOCK={value})\n"
    text = knob_proposals.declare(source, knob_proposals.propose(source, "triton"), "triton")
    assert declared in text, text
    compile(text, "add.py", "exec")


def test_number_of_a_grid_that_two_blocks_need_gets_no_knob() -> None:
    source = "def run(x, n):\n    grid = (cdiv(n, 128),)\n    one[grid](x, BLOCK=128)\n" \
        "    other[grid](x, BLOCK=128, num_warps=4)\n"
    assert [each.name for each in knob_proposals.propose(source, "triton")] == ["OTHER_NUM_WARPS"]


def ast_of(text: str) -> str:
    import ast

    return ast.dump(ast.parse(text))


@pytest.mark.parametrize("language", ["c", "cuda"])
def test_constants_in_c_get_a_knob_comment_which_inlining_removes(language: str) -> None:
    proposals = knob_proposals.propose(C, language)
    assert [(each.name, each.value) for each in proposals] == [("TILE", 32), ("BLOCK_M", 64)]
    text = knob_proposals.declare(C, proposals, language)
    assert [each.name for each in knobs.find(text, language=language)] == ["TILE", "BLOCK_M"]
    assert knob_proposals.inlined(text) == C


def test_source_with_knobs_of_its_own_gets_no_proposals() -> None:
    assert knob_proposals.propose(declared(), "triton") == ()


CUDA = """// A kernel.
#include <cuda_runtime.h>

template <typename T, int BLOCK, int ITEMS>
__global__ void __launch_bounds__(128) scale_kernel(const T *x, T *out, int n) {}
__global__ __launch_bounds__(64, 2) void other(int n) {}

extern "C" void scale(const float *x, float *out, int n, cudaStream_t stream) {
    scale_kernel<float, 128, 4><<<(n + 127) / 128, 128, 0, stream>>>(x, out, n);
}
"""


def test_one_knob_sets_template_argument_block_size_and_bounds_of_a_launch() -> None:
    proposals = knob_proposals.propose(CUDA, "cuda")
    assert {each.name: (each.value, each.choices) for each in proposals} == {
        "SCALE_KERNEL_BLOCK": (128, (32, 64, 128, 256, 512)),
        "SCALE_KERNEL_ITEMS": (4, (1, 2, 4, 8, 16)),
        "OTHER_LAUNCH_BOUNDS": (64, (64, 128, 256, 512, 1024)),
        "OTHER_BLOCKS_PER_SM": (2, (1, 2, 3, 4, 8))}
    text = knob_proposals.declare(CUDA, proposals, "cuda")
    assert "__launch_bounds__(SCALE_KERNEL_BLOCK) scale_kernel" in text
    assert ("scale_kernel<float, SCALE_KERNEL_BLOCK, SCALE_KERNEL_ITEMS><<<(n + "
            "(SCALE_KERNEL_BLOCK - 1)) / SCALE_KERNEL_BLOCK, SCALE_KERNEL_BLOCK, 0") in text
    assert text.index("#define SCALE_KERNEL_BLOCK 128") < text.index("template")
    assert len(knobs.find(text, language="cuda")) == 4
    assert knob_proposals.inlined(text) == CUDA


def test_constant_of_a_launch_gets_the_usual_numbers_of_threads() -> None:
    """Also if it is called `block`, and the task has a launch without constants of its own."""
    source = "const int block = 128;\nvoid go(int n) { f<<<n, block, block * 4>>>(x, n); }\n"
    [proposal] = knob_proposals.propose(source, "cuda", {})
    assert (proposal.name, proposal.choices) == ("block", (32, 64, 128, 256, 512, 1024))


@pytest.mark.parametrize(("declared", "block", "names"), [
    ("constexpr int kThreads = 256;", "kThreads", ["kThreads"]),
    ("constexpr int kThreads = 256;", "dim3 block(kThreads, 1);", ["kThreads"]),
    ("#define TPB 16", "dim3 block(TPB, TPB);", ["TPB"]),
    ("const int size = 2048;", "size / 2", []), ("#define WARP_SIZE 32", "WARP_SIZE", []),
    ("const int batch_size = 32;", "64", [])])
def test_constant_of_a_block_is_a_knob_whatever_its_name(
        declared: str, block: str, names: list[str]) -> None:
    before, name = (block, "block") if block.startswith("dim3") else ("", block)
    source = f"{declared}\nvoid go(int n) {{\n    {before}\n    f<<<n, {name}>>>(x, n);\n}}\n"
    assert [each.name for each in knob_proposals.propose(source, "cuda", {})] == names


def test_chosen_values_are_inlined_in_c() -> None:
    declared = knob_proposals.declare(CUDA, knob_proposals.propose(CUDA, "cuda"), "cuda")
    text = knob_proposals.inlined(knobs.apply(declared, {"SCALE_KERNEL_BLOCK": 256},
                                              language="cuda"))
    assert "__launch_bounds__(256)" in text and "<<<(n + 255) / 256, 256, 0" in text


def test_knob_is_named_after_its_template_parameter_also_if_launch_bounds_use_it() -> None:
    source = CUDA.replace("__launch_bounds__(128)", "__launch_bounds__(BLOCK)")
    names = [each.name for each in knob_proposals.propose(source, "hip")]
    assert names == ["OTHER_LAUNCH_BOUNDS", "OTHER_BLOCKS_PER_SM", "SCALE_KERNEL_BLOCK",
                     "SCALE_KERNEL_ITEMS"]


def test_numbers_in_comments_are_not_knobs() -> None:
    assert not knob_proposals.propose("// #define TILE 32\n/* f<4><<<1, 2>>>() */\n", "hip")
