"""Triton transformations keep a kernel's result, alone and combined, or say why none applies."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.transformations import transformation_registry
from engine.transformations.transformation import DoesNotApply, Transformation
from harness.search.space import knob_proposals, knobs
from tests.support.kernels.triton_sources import ADD, HEAD, MATMUL, RMS_NORM, SOURCES, differences

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
WANTED = {
    "add": {"triton-launch-knobs", "triton-persistent-grid"},
    "softmax": {"triton-launch-knobs", "triton-persistent-grid", "triton-eviction",
                "triton-rows-per-program", "triton-register-limit"},
    "layer_norm": {"triton-launch-knobs", "triton-persistent-grid", "triton-pipelined-loops",
                   "triton-eviction"},
    "rms_norm": {"triton-launch-knobs", "triton-persistent-grid", "triton-rows-per-program"},
    "matmul": {"triton-launch-knobs", "triton-grouped-order", "triton-pipelined-loops"},
}
CLOSE = 2e-5
RETURNS = ADD.replace("    at = ", "    if pid > 9:\n        return\n    at = ")
LOOPED = ADD.replace("    x = tl.load", "    for first in range(0, n, BLOCK):\n        x = tl.load")
TUNED = ADD.replace("@triton.jit", "@triton.autotune([], key=[])\n@triton.jit")


def test_tutorial_kernels_compute_the_same_after_each_transformation(tmp_path: Path) -> None:
    """Alone, with another value of each knob, and all together."""
    made: list[tuple[str, str, str]] = []
    for name, source in SOURCES.items():
        made.append((name, "as it was", source))
        applied = set()
        for each in transformation_registry.BY_LANGUAGE["triton"]:
            try:
                changed = each.apply(source)
            except DoesNotApply as reason:
                assert len(str(reason)) > 20
                continue
            applied.add(each.name)
            made.append((name, each.name, changed.source))
            declared = {knob.name: knob for knob in knobs.find(changed.source, language="triton")}
            other = {knob: declared[knob].choices[-1] for knob in changed.knobs}
            made.append((name, f"{each.name}, {other}",
                         knobs.apply(changed.source, other, language="triton")))
        assert applied >= WANTED[name], name
        whole, combined = source, list[str]()
        while left := [change for change in transformation_registry.applicable(whole, "triton")
                       if change.name not in combined]:
            whole = found(left[0].name).apply(whole).source
            combined.append(left[0].name)
        assert len(combined) >= 2, name
        made.append((name, " + ".join(combined), whole))
    results = differences([(name, source) for name, _, source in made], tmp_path)
    assert len(results) == len(made)
    wrong = [(name, how, *result) for (name, how, _), result in zip(made, results, strict=True)
             if not result[0] < CLOSE]
    assert not wrong


def test_argument_is_added_after_the_last_one_in_each_form_of_a_launch(tmp_path: Path) -> None:
    """A comment behind the last argument swallowed it."""
    lasts = ["BLOCK=32,\n    ", "BLOCK=32,  # lanes\n    ", "BLOCK=(32)  # lanes (all)\n    ",
             "**dict(BLOCK=32),  # lanes\n    "]
    launch = "x.numel(), BLOCK=32)"
    assert launch in ADD
    grid = ADD.replace("lambda meta: (triton.cdiv(x.numel(), meta[\"BLOCK\"]),)",
                       "(triton.cdiv(x.numel(), 32),)")
    sources = [("add", found("triton-persistent-grid").apply(
        grid.replace(launch, f"x.numel(), {last})")).source) for last in lasts]
    positional = LOOPED.replace("range(0, n, BLOCK)", "range(0, (n))")
    assert "range(0, (n), num_stages=" in found("triton-pipelined-loops").apply(positional).source
    assert [wrong for wrong in differences(sources, tmp_path) if not wrong[0] < CLOSE] == []


def test_each_size_of_a_block_computes_all_values_with_a_literal_grid(tmp_path: Path) -> None:
    source = ADD.replace("lambda meta: (triton.cdiv(x.numel(), meta[\"BLOCK\"]),)",
                         "(triton.cdiv(x.numel(), 32),)")
    changed = found("triton-launch-knobs").apply(source).source
    block = next(knob for knob in knobs.find(changed, language="triton")
                 if knob.name == "ADD_KERNEL_BLOCK")
    sources = [("add", knobs.apply(changed, {block.name: choice}, language="triton"))
               for choice in block.choices]
    assert len(sources) > 2
    assert [wrong for wrong in differences(sources, tmp_path) if not wrong[0] < CLOSE] == []


@pytest.mark.parametrize("ids", ["pid_m = tl.program_id(axis=0)\n    pid_n = tl.program_id(axis=1)",
                                 "pid_m, pid_n = tl.program_id(0), tl.program_id(1)"])
def test_tiles_are_grouped_in_each_form_of_their_program_ids(ids: str, tmp_path: Path) -> None:
    source = MATMUL.replace("pid_m = tl.program_id(0)\n    pid_n = tl.program_id(1)", ids)
    assert ids in source
    grouped = found("triton-grouped-order").apply(source).source
    assert "tl.swizzle2d(" in grouped
    [(difference, error)] = differences([("matmul", grouped)], tmp_path)
    assert difference < CLOSE, error


def test_weights_of_a_persistent_kernel_are_loaded_before_its_loop() -> None:
    source = found("triton-persistent-grid").apply(RMS_NORM).source
    kernel = source[source.index("def rms_kernel"):source.index("def rms_norm")]
    before, _, inside = kernel.partition("for part in tl.range(")
    assert "w = tl.load(W + at, mask=mask)" in before and "x = tl.load(X" in inside
    assert "rms_kernel[(min(rows, RMS_KERNEL_PROGRAMS * processors()),)](" in source


def test_knobs_of_a_rewritten_module_are_declared_after_the_import_that_they_need() -> None:
    """The module's own classes precede that import."""
    rewritten = "import torch\n\n\nclass Model(torch.nn.Module):\n    pass\n\n\n" + ADD
    source = found("triton-persistent-grid").apply(rewritten).source
    assert source.index("import triton.language as tl") < source.index("= tl.constexpr(")


def test_declared_knobs_can_be_inlined_again() -> None:
    changed = found("triton-persistent-grid").apply(ADD)
    plain = knob_proposals.inlined(changed.source)
    assert "kopt" not in plain and "min(triton.cdiv(x.numel(), (32)), 8 * processors())" in plain


@pytest.mark.parametrize(("transformation", "source", "why"), [
    ("triton-persistent-grid", MATMUL, "one dimension"),
    ("triton-persistent-grid", RETURNS, "returns early"),
    ("triton-persistent-grid", TUNED, "autotuner"),
    ("triton-rows-per-program", SOURCES["layer_norm"], "loop"),
    ("triton-rows-per-program", MATMUL, "one dimension"),
    ("triton-grouped-order", ADD, "matrix product"),
    ("triton-launch-knobs", "import torch\n", "no kernel"),
    ("triton-launch-knobs", "TILE = 1  # kopt: knob TILE in [1, 2]\n" + ADD, "already"),
    ("triton-pipelined-loops", ADD, "no loop"),
    ("triton-register-limit", ADD, "no kernel reduces rows"),
    ("triton-register-limit", MATMUL, "no kernel reduces rows"),
    ("triton-register-limit", SOURCES["softmax"].replace("@triton.jit", "@triton.autotune([], [])\n"
                                                         "@triton.jit"), "autotuner"),
])
def test_kernel_that_a_transformation_cannot_change_is_refused(transformation: str, source: str,
                                                               why: str) -> None:
    with pytest.raises(DoesNotApply, match=why):
        found(transformation).apply(source)


def test_python_file_with_triton_kernels_gets_their_transformations() -> None:
    names = {each.name for each in transformation_registry.applicable(ADD, "python")}
    assert names and names == {
        each.name for each in transformation_registry.applicable(ADD, "triton")}
    assert transformation_registry.applicable(HEAD, "python") == ()


def found(name: str) -> Transformation:
    transformation = transformation_registry.find(name)
    assert transformation is not None
    return transformation
