"""A check that trivial answers pass is flagged, but not for an output of a single number."""

from __future__ import annotations

from pathlib import Path

from harness.tasks.target import Arg
from tests.support.kernels.check_case import check
from tests.support.kernels.kernel_case import target


def test_reduction_to_one_number_is_not_a_weak_check(tmp_path: Path) -> None:
    """The trivial answer "constant", the mean of the output, is right for a single number."""
    task = target(language="python", args=(
        Arg(name="x", dtype="float32", shape=("n",)),
        Arg(name="out", dtype="float32", shape=(1,), role="output")))
    checked = check(tmp_path, "def double(x, out):\n    out[0] = x.abs().sum()\n", task,
                    reference="def double(x):\n    return x.abs().sum()[None]\n")
    assert checked.right and "weak-check" not in checked.rules, checked
