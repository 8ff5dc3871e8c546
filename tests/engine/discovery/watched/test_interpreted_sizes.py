"""Triton's interpreter gets smaller shapes, of the same kinds, where a class has many values."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.discovery.watched.interpreted_sizes import MOST_VALUES, with_smaller_shapes
from harness.tasks import task_file
from harness.tasks.target import Arg, ConfigClass, Target
from tests.support import repos
from tests.support.kernels.triton_sources import RMS_NORM
from tests.support.programs.command_line import answer, kopt


@pytest.mark.parametrize(("shape", "interpreted"), [
    ({"rows": 8, "cols": 64}, None),
    ({"rows": 8192, "cols": 4096}, {"rows": 128, "cols": 256}),
    ({"rows": 4097, "cols": 1025}, {"rows": 129, "cols": 257}),
    ({"rows": 2, "cols": 12_345_678}, {"rows": 2, "cols": 12_057}),
    ({"rows": 100_000, "cols": 16}, {"rows": 3125, "cols": 16}),
])
def test_largest_sizes_are_halved_until_few_values_are_left(
        shape: dict[str, int], interpreted: dict[str, int] | None) -> None:
    [entry] = with_smaller_shapes(_target(ConfigClass(name="a", shape=shape))).classes
    assert entry.shape == shape and entry.interpret_shape == interpreted
    sizes = interpreted or shape
    assert sizes["rows"] * sizes["cols"] + sizes["cols"] <= MOST_VALUES


def test_sizes_that_no_tensor_has_and_classes_with_stored_values_keep_theirs() -> None:
    shape = {"rows": 8192, "cols": 4096, "groups": 1_000_000}
    [plain, stored] = with_smaller_shapes(_target(
        ConfigClass(name="a", shape=shape),
        ConfigClass(name="b", shape=shape, data={"x": "values.safetensors:x"}))).classes
    assert plain.interpret_shape and plain.interpret_shape["groups"] == 1_000_000
    assert stored.interpret_shape is None


def _target(*classes: ConfigClass) -> Target:
    return Target(op="rms", language="triton", source="rms.py", entry="rms", reference="baseline",
                  args=(Arg(name="x", dtype="float32", shape=("rows", "cols")),
                        Arg(name="w", dtype="float32", shape=("cols",))),
                  classes=classes, returns=True, return_dtypes=("float32",))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize(("multiple", "interpreted"), [(1, {"rows": 550, "cols": 64}),
                                                       (1100, None)])
def test_first_check_of_a_triton_function_takes_smaller_shapes_unless_they_are_refused(
        multiple: int, interpreted: dict[str, int] | None, tmp_path: Path) -> None:
    first = "def rms_norm(x, weight):\n"
    check = f"    assert x.shape[0] % {multiple} == 0\n"
    (tmp_path / "rms.py").write_text(RMS_NORM.replace(first, first + check))
    repos.git(tmp_path, "init", "-q")
    value = answer(kopt("new", "rms.py:rms_norm", "--device", "cpu", "--shape", "x=1100,64",
                        "--shape", "weight=64", "--yes", "--json", cwd=tmp_path))
    assert value["first_verdict"]["correct"]
    [entry] = task_file.load(tmp_path / "task.yaml").classes
    assert (entry.shape, entry.interpret_shape) == ({"rows": 1100, "cols": 64}, interpreted)
