"""Environment variables override the pool's mode, skip_profile, self-test cap and workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.campaign.setup import open_campaign
from engine.manifest.load import POOL_VARIABLES, apply_environment
from engine.manifest.pool_schema import PoolSpec
from harness.errors import InputError
from tests.support.engines import campaigns
from tests.support.paths import ROOT


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
def test_variable_overrides_the_manifest_unless_empty(
        variable: str, text: str, field: str, value: Any) -> None:
    assert getattr(apply_environment(PoolSpec(), {variable: text}), field) == value


@pytest.mark.parametrize(("variable", "text"), [
    ("KOPT_POOL_MODE", "wild"), ("KOPT_SKIP_PROFILE", "perhaps"), ("KOPT_WORKERS_PER_GPU", "0"),
    ("KOPT_SELFTEST_ITERATIONS", "-1"), ("KOPT_MIN_PARALLEL_WORKERS", "many")])
def test_invalid_variable_is_refused_by_name(variable: str, text: str) -> None:
    with pytest.raises(InputError, match=f"^{variable}: {text!r} is not a valid "):
        apply_environment(PoolSpec(), {variable: text})


def test_campaign_keeps_overrides_of_its_creation(tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    overrides = {"KOPT_POOL_MODE": "planned", "KOPT_SKIP_PROFILE": "yes",
            "KOPT_SELFTEST_ITERATIONS": "7", "KOPT_MIN_PARALLEL_WORKERS": "3",
            "KOPT_WORKERS_PER_GPU": "2"}
    for variable, text in overrides.items():
        monkeypatch.setenv(variable, text)
    made = campaigns.create(tmp_path)
    for variable in overrides:
        monkeypatch.delenv(variable)
    for setup in (made, open_campaign(made.workspace, made.id)):
        pool = setup.manifest.pool
        assert (pool.mode, pool.skip_profile, pool.selftest_iterations, pool.min_workers,
                pool.workers_per_gpu) == ("planned", True, 7, 3, 2)
    readme = (ROOT / "README.md").read_text()
    assert all(variable in readme for variable in POOL_VARIABLES)
