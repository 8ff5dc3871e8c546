"""A wrong candidate gets up to three repairs with its hypothesis; each is judged and recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.history import history
from engine.rounds import retries
from harness.verdict import Evidence, Row, Verdict, rejected
from tests.support.engines import campaigns, instant_verdicts
from tests.support.engines.instant_verdicts import Judged
from tests.support.engines.repair_case import create, decisions

WRONG = Row(config_class="one", correct=False)
RIGHT = Row(config_class="one", correct=True, latency_us=1.0, outcome="tie")


def costs(setup: Setup, tree: str) -> float:
    source = setup.repo.read(tree, "scale.c").decode()
    if "x[i] * 3.0f;" in source:
        raise Judged(Verdict(valid=True, correct=False, rows=(WRONG,)))
    if "x[i] * 2.0f" in source and "x[i] * 2.0f;" not in source:
        raise Judged(replace(rejected("does not compile"), evidence=(
            Evidence(kind="fault", detail="build"),)))
    return instant_verdicts.passes(setup, tree)


def test_wrong_candidate_is_repaired_and_kept(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instant_verdicts.install(monkeypatch, costs)
    setup = create(tmp_path)
    campaigns.run(setup)
    made = decisions(setup)
    assert [kind for kind, _ in made] == ["repair", "repair", "keep"], made
    assert "wrong result" in made[0][1] and made[0][1].endswith("repair 1 of 3")
    assert "does not compile" in made[1][1] and made[1][1].endswith("repair 2 of 3")
    found = campaigns.candidates(setup)
    assert len({c.hypothesis for c in found}) == 1 and len(found) == 3
    with campaigns.reading(setup) as reader:
        assert len({d.verdict for d in reader.decisions(setup.id)}) == 3  # each was judged
        assert history.read(reader, setup.id).tally.consecutive_regressions == 0
        assert sum(r.cost for r in reader.rounds(setup.id)) == 3.0
    stage, detail = campaigns.slots(setup)["fixed"]
    assert stage == "kept" and detail.endswith("; left out my_cache/fast.h (cache folder)")
    logs = [setup.folder.worker_log(2, "fixed", attempt).read_text() for attempt in (1, 2, 3)]
    assert ["Repair, attempt" in log for log in logs] == [False, True, True]
    assert "Repair, attempt 2 of 3" in logs[2]
    summary = (setup.folder.round(2) / "summary.md").read_text()
    assert "left out my_cache/fast.h (cache folder)" in summary


@pytest.mark.slow
def test_third_repair_is_the_last_and_its_failure_is_not_a_regression(tmp_path: Path) -> None:
    setup = create(tmp_path, "--never")
    campaigns.run(setup)
    made = decisions(setup)
    assert [kind for kind, _ in made] == ["repair", "repair", "repair", "reject"]
    assert "wrong result" in made[0][1]
    with campaigns.reading(setup) as reader:
        assert [r.outcome for r in reader.rounds(setup.id)] == ["baseline", "failed"]
        assert history.read(reader, setup.id).tally.consecutive_regressions == 0


@pytest.mark.slow
def test_repair_beyond_the_cost_budget_is_not_begun(tmp_path: Path) -> None:
    setup = create(tmp_path, "--never", budget={"pairs": 4, "cost": 2.5})
    campaigns.run(setup)
    assert [kind for kind, _ in decisions(setup)] == ["repair", "reject"]


def faulty(kind: str, detail: str) -> Verdict:
    return replace(rejected("it failed"), evidence=(Evidence(kind=kind, detail=detail),))


@pytest.mark.parametrize(("verdict", "repairable"), [
    (Verdict(valid=True, correct=False, rows=(WRONG,)), True),
    (faulty("fault", "build"), True), (faulty("fault", "tests"), True),
    (faulty("fault", "crash"), True), (faulty("benchmark-fault", "build"), True),
    (faulty("benchmark-fault", "exit"), True), (faulty("benchmark-fault", "timeout"), True),
    (faulty("benchmark-fault", "changed-files"), False),
    (faulty("benchmark-fault", "stale-file"), False),
    (rejected("audit: it reads the clock"), False), (rejected("tampered"), False),
    (Verdict(valid=True, correct=True, rows=(RIGHT,)), False)])
def test_wrong_or_broken_is_repairable_and_cheating_is_not(
        verdict: Verdict, repairable: bool) -> None:
    assert retries.is_repairable(verdict) is repairable
