"""Many honest variants, in tables: each is valid and correct and raises no alarm."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.devices import inventory
from tests.honest import case
from tests.honest.case import Honest
from tests.honest.kinds import KINDS
from tests.honest.variants import (
    c_state,
    c_threads,
    c_variants,
    gpu_kinds,
    gpu_variants,
    python_variants,
    unusual,
)

ALL = [variant for module in (c_variants, c_state, c_threads, unusual, python_variants,
                              gpu_variants, gpu_kinds) for variant in module.VARIANTS]


def named(id: str) -> str:
    """Return a candidate's id, preceded by its kinds."""
    return "/".join([*(kind for kind, names in KINDS.items() if id in names), id])


@pytest.fixture(autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share one lock between all workers of a test run: they must not time side by side."""
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path_factory.getbasetemp().parent / "locks"))


def test_at_least_sixty_candidates_are_of_kinds_that_resemble_exploits() -> None:
    names = [id for id, _ in ALL] + [
        module.__name__.rpartition(".")[2] for module in case.all_modules()]
    assert len(set(names)) == len(names)
    of_kinds = {name for kind in KINDS.values() for name in kind}
    assert of_kinds <= set(names), of_kinds - set(names)
    assert len(of_kinds) >= 60
    assert all(len(kind) >= 3 for kind in KINDS.values())


@pytest.mark.slow
@pytest.mark.parametrize("honest", [
    pytest.param(honest, id=named(id), marks=[pytest.mark.gpu] if honest.gpu else [])
    for id, honest in ALL])
def test_honest_variant_is_correct_and_raises_no_alarm(honest: Honest, tmp_path: Path) -> None:
    device = "cpu" if not honest.gpu else next(
        d.id for d in inventory.inventory() if d.kind != "cpu" and not d.unusable)
    verdict = case.verdict_on(honest, tmp_path, device)
    assert verdict.valid and verdict.correct, (verdict.rejected_reason, verdict)
    assert case.alarms(honest, verdict.audit) == [], verdict.audit
    assert verdict.latency_us is not None
