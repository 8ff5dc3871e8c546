"""Fixtures for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kernels.c_case import Bench
from tests.support.kernels.evaluate_c_case import ONE_CLASS


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, locks: None) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"), ONE_CLASS)
    yield made
    made.oracle.close()
