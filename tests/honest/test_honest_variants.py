"""Many honest variants, in tables: each is valid and correct and raises no alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices import inventory
from tests.honest import case
from tests.honest.case import Honest
from tests.honest.variants import c_variants, gpu_kinds, gpu_variants, python_variants

pytestmark = pytest.mark.slow

ALL = [*c_variants.VARIANTS, *python_variants.VARIANTS, *gpu_variants.VARIANTS,
       *gpu_kinds.VARIANTS]


@pytest.fixture(autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share one lock between all workers of a test run: they must not time side by side."""
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path_factory.getbasetemp().parent / "locks"))


def test_variants_have_names_of_their_own() -> None:
    assert len({id for id, _ in ALL}) == len(ALL) >= 40


@pytest.mark.parametrize("honest", [
    pytest.param(honest, id=id, marks=[pytest.mark.gpu] if honest.gpu else [])
    for id, honest in ALL])
def test_variant_passes(honest: Honest, tmp_path: Path) -> None:
    device = "cpu" if not honest.gpu else next(
        d.id for d in inventory.inventory() if d.kind != "cpu" and not d.unusable)
    verdict = case.verdict_on(honest, tmp_path, device)
    assert verdict.valid and verdict.correct, (verdict.rejected_reason, verdict)
    assert case.alarms(honest, verdict.audit) == [], verdict.audit
    assert verdict.latency_us is not None
