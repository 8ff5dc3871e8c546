"""An oracle of a task with four inputs, and a pair of runners whose slots it fills and judges."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.runners.oracle_client import Oracle
from tests.support.slot_pair import FOUR, FOUR_REFERENCE, OUT, Pair, opened, task


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
