"""The oracle: what it draws, what it expects, and that a change of the inputs changes both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import devices, kernel
from harness.oracle import Case, Oracle, OracleError
from harness.target import ConfigClass, Target
from tests import kernel_case
from tests.c_case import target as c_target
from tests.c_case import tree

CUMULATIVE = "import numpy as np\ndef twice(x):\n    return np.cumsum(x)\n"


def opened(folder: Path, of: Target, reference: str) -> Oracle:
    base = Path(tree(folder / "base", "", reference))
    place = kernel.place_on(devices.find("cpu"), of.language, scratch=str(folder), python=None,
                            env={})
    return Oracle(of, base, folder / "io", place)


SMALL = (ConfigClass(name="small", shape={"n": 9}),)


@pytest.fixture(params=["c", "python"])
def cumulative(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Oracle]:
    if request.param == "c":
        of, reference = c_target(classes=SMALL), CUMULATIVE
    else:
        of = kernel_case.target(classes=SMALL, language="python")
        reference = "import torch\ndef double(x):\n    return torch.cumsum(x, 0)\n"
    with opened(tmp_path, of, reference) as oracle:
        yield oracle


def answer(case: Case, values: list[float]) -> list[dict[str, object]]:
    """Write what a runner would, the inputs untouched, and return its word for it."""
    import numpy as np

    said: list[dict[str, object]] = []
    for tensor in case.tensors:
        if tensor["role"] == "scalar":
            continue
        data = Path(tensor["path"]).read_bytes() if tensor["role"] == "input" else \
            np.array(values, dtype=tensor["dtype"]).tobytes()
        Path(tensor["after"]).write_bytes(data)
        said.append({"name": tensor["name"], "dtype": tensor["dtype"], "shape": tensor["shape"]})
    return said


def inputs(case: Case) -> list[float]:
    import numpy as np

    return list(np.fromfile(case.tensors[0]["path"], dtype="float32").astype(float))


def test_an_exchange_is_simultaneous_and_the_expected_values_follow(cumulative: Oracle) -> None:
    case = cumulative.make(cumulative.target.classes[0], "normal")
    before = inputs(case)
    want = [sum(before[: i + 1]) for i in range(9)]
    assert cumulative.judge(case, answer(case, want)).within(1e-5)
    cumulative.exchange(case, {"x": {0: 8, 8: 0, 3: 4}})
    after = inputs(case)
    changed = [before[8], *before[1:3], before[4], *before[4:8], before[0]]
    assert after == changed
    stale = cumulative.judge(case, answer(case, want))
    assert not stale.within(1e-5) and not stale.changed
    assert cumulative.judge(case, answer(case, [sum(after[: i + 1]) for i in range(9)])
                            ).within(1e-5)
    cumulative.exchange(case, {"x": {0: 8, 8: 0}})
    assert inputs(case)[0] == before[0]


@pytest.mark.parametrize("moves", [{0: 9}, {9: 0}, {-1: 0}])
def test_an_exchange_stays_inside_of_the_tensor(cumulative: Oracle, moves: dict[int, int]) -> None:
    case = cumulative.make(cumulative.target.classes[0], "normal")
    with pytest.raises(OracleError, match="outside"):
        cumulative.exchange(case, {"x": moves})
