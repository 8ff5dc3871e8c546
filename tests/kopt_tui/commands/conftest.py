"""A fixture of the tests of commands: a project in a repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import repos
from tests.support.benchmarks.new_benchmark_case import FILES


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return repos.project(tmp_path / "pa", FILES)
