"""Pool modes, skip_profile, the cap of self-tests and the workers' numbers, by the environment."""

from __future__ import annotations

from typing import Any

import pytest

from engine.manifest import Pool
from engine.pool_env import overridden
from harness.errors import InputError


@pytest.mark.parametrize(("variable", "text", "field", "value"), [
    ("KOPT_POOL_MODE", "fixed", "mode", "fixed"),
    ("KOPT_POOL_MODE", "planned", "mode", "planned"),
    ("KOPT_POOL_MODE", "mixed", "mode", "mixed"),
    ("KOPT_POOL_MODE", "", "mode", "mixed"),
    ("KOPT_SKIP_PROFILE", "1", "skip_profile", True),
    ("KOPT_SKIP_PROFILE", "no", "skip_profile", False),
    ("KOPT_SELFTEST_ITERATIONS", "5", "selftest_iterations", 5),
    ("KOPT_SELFTEST_ITERATIONS", " ", "selftest_iterations", None),
    ("KOPT_MIN_PARALLEL_WORKERS", "3", "min_workers", 3),
    ("KOPT_MIN_PARALLEL_WORKERS", "", "min_workers", 8),
    ("KOPT_WORKERS_PER_GPU", "2", "workers_per_gpu", 2)])
def test_a_variable_speaks_over_the_manifest_and_an_empty_one_does_not(
        variable: str, text: str, field: str, value: Any) -> None:
    assert getattr(overridden(Pool(), {variable: text}), field) == value


@pytest.mark.parametrize(("variable", "text"), [
    ("KOPT_POOL_MODE", "wild"), ("KOPT_SKIP_PROFILE", "perhaps"), ("KOPT_WORKERS_PER_GPU", "0"),
    ("KOPT_SELFTEST_ITERATIONS", "-1"), ("KOPT_MIN_PARALLEL_WORKERS", "many")])
def test_what_means_nothing_is_refused_by_the_variables_name(variable: str, text: str) -> None:
    with pytest.raises(InputError, match=f"^{variable}: {text!r} is no "):
        overridden(Pool(), {variable: text})
