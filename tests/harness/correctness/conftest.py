"""Fixtures for the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.judging.runtime_audit_case import Bench


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    started = Bench(tmp_path_factory.mktemp("bench"))
    yield started
    started.close()
