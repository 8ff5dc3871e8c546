"""The end of a campaign runs the whole program with its best, also after a late approval."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.context import EngineContext
from engine.history.campaign_view import NOT_RUN
from engine.journal.write import request
from engine.records.writer import Records
from engine.run import ending
from engine.verify.verifier import VerdictRequest
from harness.benchmark.verdict.whole_program import LEFT_OUT
from harness.verdict import Evidence, Verdict
from tests.support.dashboards import samples
from tests.support.engines import campaigns, rollback_case
from tests.support.engines.campaigns import reading, run


@pytest.mark.slow
def test_approval_after_the_end_writes_its_own_stop_summary(tmp_path: Path) -> None:
    """The whole program runs with the approved candidate, and all records have its result."""
    setup = campaigns.create_with_patch(tmp_path, approval="review", e2e_command="python -c pass")
    assert run(setup).error is None
    [waiting] = campaigns.candidates(setup, "waiting")
    with reading(setup) as reader:
        assert [row for row in reader.verdicts(setup.id) if row.purpose == "e2e"] == []
    assert "nothing was kept" in setup.folder.log.read_text()

    request(setup.workspace, setup.id, "approve", by="ann@test", candidate=waiting.id)
    assert run(setup, decide_only=True).error is None
    found = campaigns.campaign(setup)
    best = setup.repo.best
    assert found.state == "finished" and best == found.best_commit != found.base_commit
    with reading(setup) as reader:
        [program] = [row for row in reader.verdicts(setup.id) if row.purpose == "e2e"]
        first, second = reader.events_of(setup.id, "campaign.stop")
        assert program.candidate == best[:12] and program.correct
        assert (first.ref, second.ref) == (found.base_commit, best)
        assert (json.loads(first.payload)["waiting"], json.loads(second.payload)["waiting"]) == \
            (1, 0)
    performance, log = setup.folder.performance.read_text(), setup.folder.log.read_text()
    last = performance.split("## Stop Summary")[-1]
    assert f"current BEST_COMMIT: {best}" in last and "waiting for a person: 0" in last
    assert "nothing was kept" not in log.split("## Final Report")[-1]
    assert log.index("## End to end") < log.rindex("## Stop Summary")
    stop = setup.folder.page.read_text().split("Stop summary")[-1]
    assert best in stop and "nothing was kept" not in stop

    assert run(setup, decide_only=True).error is None  # nothing new to report
    with reading(setup) as reader:
        assert len(reader.events_of(setup.id, "campaign.stop")) == 2
        assert len([r for r in reader.verdicts(setup.id) if r.purpose == "e2e"]) == 1
        before = setup.folder.log.read_bytes()
        setup.folder.log.unlink()
        Records(setup).write_all(reader)
    assert setup.folder.log.read_bytes() == before


class Book:
    """The part of a context that an end-to-end run records to."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict, self.jobs = verdict, list[VerdictRequest]()
        self.events: list[tuple[str, dict[str, Any]]] = []
        repo = SimpleNamespace(best="b" * 40, base="a" * 40, tree_of=lambda commit: "t")
        decision = SimpleNamespace(alpha=0.05)
        self.context = cast(EngineContext, SimpleNamespace(
            setup=SimpleNamespace(repo=repo, id="rms",
                                  manifest=SimpleNamespace(decision=decision)),
            verdict=self.answer, writer=SimpleNamespace(
                event=lambda _, kind, ref, **payload: self.events.append((kind, payload)))))

    def answer(self, job: VerdictRequest) -> Verdict:
        self.jobs.append(job)
        return self.verdict


def test_program_is_not_run_without_wall_time_left() -> None:
    book = Book(samples.verdict())
    ending.end_to_end(book.context, left_s=0.0)
    assert book.jobs == [] and book.events == [(NOT_RUN, {
        "commit": "b" * 12, "message": "not run: no wall time is left"})]


def test_run_without_enough_time_is_not_a_verdict_on_best() -> None:
    why = "not run: the time limit was 5 s and one run takes up to 8 s"
    book = Book(Verdict(valid=False, rejected_reason=why,
                        evidence=(Evidence(kind=LEFT_OUT, detail=why),)))
    ending.end_to_end(book.context, left_s=5.0)
    assert [job.left_s for job in book.jobs] == [5.0]
    assert book.events == [(NOT_RUN, {"commit": "b" * 12, "message": why})]


SLOWER_WITH_C = "python -c 'import kernel; print(\"speed\", 100 if kernel.C == 60 else 50)'"


@pytest.mark.slow
@pytest.mark.parametrize("rolls_back", [True, False])
def test_slower_program_causes_or_recommends_a_rollback(tmp_path: Path, rolls_back: bool) -> None:
    setup = rollback_case.create(
        tmp_path, "D", full_test_command="", e2e_command=SLOWER_WITH_C,
        e2e_metric={"name": "speed", "direction": "higher"}, e2e={"rollback": rolls_back})
    assert run(setup).error is None
    _, second, third = rollback_case.kept_commits(setup)
    assert rollback_case.checked_best(setup) == (second if rolls_back else third)
    log = setup.folder.log.read_text()
    assert "the program is slower, although the kernel is faster: roll the kernel back" in log
    reason = campaigns.campaign(setup).reason
    assert (f"the whole program is slower with {third[:12]}: 0.50x" in reason) == rolls_back
    assert (f"rolled back to {second[:12]}, which was kept before it" in reason) == rolls_back


@pytest.mark.slow
def test_slow_program_does_not_lose_the_gain(tmp_path: Path) -> None:
    """It gets the wall time that is left, is due again later, and the campaign ends normally."""
    setup = campaigns.create_with_patch(
        tmp_path, budget={"pairs": 4, "wall_s": 60.0}, e2e_command="sleep 100"
    )
    assert run(setup).error is None
    found = campaigns.campaign(setup)
    assert found.state == "finished" and found.best_commit != found.base_commit and found.speedup
    with reading(setup) as reader:
        [event] = reader.events_of(setup.id, NOT_RUN)
        assert sum(round.spent_s for round in reader.rounds(setup.id)) < 70
    assert "not run: " in json.loads(event.payload)["message"]
    assert "not run: " in setup.folder.report.read_text()
