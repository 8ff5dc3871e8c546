"""Fixtures: an oracle, two stub runners whose slots it fills, and arrays of each library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.child.oracle.arrays_numpy import NumpyArrays
from harness.runners.oracle_client import Oracle
from tests.support.judging.ring_case import LARGE
from tests.support.judging.slot_pair import FOUR, FOUR_REFERENCE, OUT, Pair, opened, task


@pytest.fixture(scope="module", params=["c", "python"])
def oracle(request: pytest.FixtureRequest,
           tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    folder = tmp_path_factory.mktemp("ring")
    with opened(folder, task((*FOUR, OUT), request.param), FOUR_REFERENCE) as started:
        yield started


@pytest.fixture
def pair(oracle: Oracle) -> Iterator[Pair]:
    made = Pair(oracle)
    yield made
    made.ring.close()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let numpy's arrays treat inputs of LARGE or more elements as large."""
    monkeypatch.setattr(NumpyArrays, "large", LARGE)


@pytest.fixture(scope="module")
def torch_arrays() -> Any:
    torch = pytest.importorskip("torch")
    from harness.child.oracle.arrays_torch import TorchArrays

    arrays = TorchArrays("cpu")
    torch.set_num_threads(1)  # other test workers use the other cores
    arrays.large = LARGE
    return arrays


@pytest.fixture(scope="module")
def card_arrays(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from harness.child.oracle.arrays_torch import TorchArrays
    from harness.child.oracle.card_kernels import KINDS as DTYPES

    arrays = TorchArrays("cuda:0", DTYPES, str(tmp_path_factory.mktemp("kernels")))
    arrays.large = LARGE
    return arrays


@pytest.fixture(params=["numpy", "torch", "torch, windows copied",
                        pytest.param("card", marks=pytest.mark.gpu)])
def arrays(request: pytest.FixtureRequest, torch_arrays: Any, large: None,
           monkeypatch: pytest.MonkeyPatch) -> Any:
    """Arrays of one library; a torch variant copies long windows too, as it does short ones."""
    if request.param == "card":
        return request.getfixturevalue("card_arrays")
    if request.param == "numpy":
        return NumpyArrays()
    copies = request.param != "torch"
    monkeypatch.setattr(torch_arrays, "direct", 1 << 30 if copies else 64)
    monkeypatch.setattr(torch_arrays, "chunk", 3000)
    return torch_arrays
