"""Honest candidates that resemble exploits are valid and correct and raise no alarm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.devices import inventory
from harness.verdict import Finding
from tests.honest import case
from tests.honest.case import Honest

pytestmark = pytest.mark.slow

MODULES = case.all_modules()
ALL = [(module.__name__.rpartition(".")[2], module.HONEST) for module in MODULES]
TEXTS = [pytest.param(one, id=name) for name, one in ALL]
HERE = [pytest.param(one, id=name, marks=[pytest.mark.gpu] if one.gpu else [])
        for name, one in ALL]
ON_A_CARD = [pytest.param(one, id=name) for name, one in ALL if one.interpretable]


@pytest.fixture(autouse=True)
def locks(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share one lock between all workers of a test run: they must not time side by side."""
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path_factory.getbasetemp().parent / "locks"))


def card() -> str:
    return next(d.id for d in inventory.inventory() if d.kind != "cpu" and not d.unusable)


def test_every_honest_candidate_describes_itself() -> None:
    assert len(ALL) >= 20
    for name, one in ALL:
        assert one.title in (next(m for m in MODULES if m.__name__.endswith(f".{name}")
                                  ).__doc__ or ""), name
        if one.problem.target.language != "c":
            compile(one.source, name, "exec")


@pytest.mark.parametrize("honest", TEXTS)
def test_static_audit_raises_no_alarm(honest: Honest, tmp_path: Path) -> None:
    quiet(honest, case.of_the_text(honest, tmp_path))


def quiet(honest: Honest, findings: Sequence[Finding]) -> None:
    """Check that there is no alarm; a known false alarm is an expected failure."""
    alarms = case.alarms(honest, findings)
    assert {alarm.rule for alarm in alarms} == {honest.alarm} - {"", "incorrect"}, alarms
    if alarms:
        pytest.xfail(f"a known false alarm: {alarms[0].detail}")


def judged(honest: Honest, folder: Path, device: str) -> Any:
    verdict = case.verdict_on(honest, folder, device)
    if honest.alarm == "incorrect":
        assert verdict.valid and not verdict.correct, "mended: it is no known alarm any more"
        pytest.xfail(f"a false alarm that is known: {verdict.rows[0].note}")
    assert verdict.valid and verdict.correct, (verdict.rejected_reason, verdict)
    quiet(honest, verdict.audit)
    return verdict


@pytest.mark.parametrize("honest", HERE)
def test_honest_candidate_passes(honest: Honest, tmp_path: Path) -> None:
    verdict = judged(honest, tmp_path, card() if honest.gpu else "cpu")
    assert honest.interpretable or verdict.latency_us is not None


@pytest.mark.gpu
@pytest.mark.parametrize("honest", ON_A_CARD)
def test_honest_candidate_passes_on_a_gpu(honest: Honest, tmp_path: Path) -> None:
    assert judged(honest, tmp_path, card()).latency_us is not None
