"""If the best fails final acceptance, the newest kept commit that passes becomes the best."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.history import history
from engine.history.kept_commits import rollbacks
from engine.journal.write import request
from engine.lineage import headline, rollback
from engine.planning.planner import Planner
from engine.records.writer import Records
from engine.run import ending
from engine.verify.fleet_device import NoDeviceAvailable
from engine.verify.verifier import VerdictRequest
from harness.errors import KoptError
from harness.verdict import Verdict
from tests.support import repos
from tests.support.engines import campaigns
from tests.support.engines.campaigns import campaign, reading, run
from tests.support.engines.repair_case import is_killed
from tests.support.engines.rollback_case import checked_best, create, events, hand_in, kept_commits

FILES = ("performance.md", "report.md", "report.html", "BEST_COMMIT", "logs/optimize.md",
         "logs/performance_trend.md", "results.tsv")
RECORDS = [name for name in FILES if name != "BEST_COMMIT"]


def approve(setup: Setup) -> None:
    """Ask the next engine to keep the first gain that waits."""
    waiting = campaigns.candidates(setup, "waiting")[0]
    request(setup.workspace, setup.id, "approve", by="eve", candidate=waiting.id)


def headlines(setup: Setup) -> dict[str, bool]:
    with reading(setup) as reader:
        return {row.candidate: row.correct for row in reversed(reader.verdicts(setup.id))
                if row.purpose == "headline"}


@pytest.mark.slow
def test_newest_passing_commit_becomes_best(tmp_path: Path) -> None:
    setup = create(tmp_path, "C")
    assert run(setup).error is None
    first, second, third = kept_commits(setup)
    assert checked_best(setup) == second
    assert headlines(setup) == {third[:12]: False, second[:12]: True}
    assert 1.6 < (campaign(setup).speedup or 0.0) < 1.7  # costs of 240 and 145
    ended = campaign(setup)
    assert ended.state == "finished" and ended.reason.startswith(
        "the best fails its final acceptance against the baseline: the project's own tests fail")
    assert ended.reason.endswith(f"rolled back to {second[:12]}, which passes it")
    [rollback] = events(setup, "rollback")
    assert (rollback["before"], rollback["commit"], rollback["undone"]) == (third, second, [third])
    assert events(setup, "warning") == []
    performance = setup.folder.performance.read_text()
    assert performance.count("| rolled back |") == 1 and performance.count("| keep |") == 2
    assert f"- current BEST_COMMIT: {second}\n- rolled back: from {third[:12]}: " in performance
    log = setup.folder.log.read_text()
    assert f"## Rolled back to {second[:12]}" in log
    assert f"kept before, and not in the result: {third[:12]}" in log
    assert "rolled back" in setup.folder.report.read_text()
    assert repos.git(setup.repo.git_dir, "cat-file", "-t", third) == "commit"
    before = {name: (setup.folder.path / name).read_bytes() for name in RECORDS}
    for name in RECORDS:
        (setup.folder.path / name).unlink()
    with reading(setup) as reader:
        Records(setup).write_all(reader)
    assert {name: (setup.folder.path / name).read_bytes() for name in RECORDS} == before

    code, _, err = campaigns.command(
        "merge", setup.id, workspace=setup.workspace)
    assert code == 0, err
    message = repos.git(setup.repo.project, "log", "-1", "--format=%B")
    assert third[:12] not in message and second[:12] in message and "C = 60.0" in (
        setup.repo.project / "kernel.py").read_text()
    repos.git(setup.repo.project, "reset", "-q", "--hard", "HEAD^1")

    hand_in(setup, "D")  # the lineage continues from the new best, even if the next keep is killed
    assert is_killed(setup, "keep.push")
    assert run(setup).error is None and events(setup, "warning") == []
    fourth = kept_commits(setup)[-1]
    assert checked_best(setup) == fourth
    assert setup.repo.log(fourth, setup.repo.base) == [first, second, fourth]
    assert "final acceptance" not in campaign(setup).reason and len(events(setup, "rollback")) == 1


@pytest.mark.slow
def test_earlier_commits_are_measured_until_one_passes(tmp_path: Path) -> None:
    setup = create(tmp_path, "B")
    assert run(setup).error is None
    first, second, third = kept_commits(setup)
    assert checked_best(setup) == first
    assert headlines(setup) == {third[:12]: False, second[:12]: False, first[:12]: True}
    assert campaign(setup).reason.endswith("which passes it; 1 more failed it")


@pytest.mark.slow
def test_baseline_becomes_best_if_no_commit_passes(tmp_path: Path) -> None:
    setup = create(tmp_path, "A", e2e_command="python -c 'raise SystemExit(3)'")
    assert run(setup).error is None
    assert checked_best(setup) == setup.repo.base
    assert campaign(setup).speedup is None and len(headlines(setup)) == 3
    assert "rolled back to the baseline: no kept commit is known to pass it; 2 more failed it" in \
        campaign(setup).reason
    assert events(setup, "e2e") == [] and events(setup, "warning") == []
    assert f"- current BEST_COMMIT: {setup.repo.base}" in setup.folder.performance.read_text()


@pytest.mark.slow
def test_rollback_measures_only_while_time_remains(tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Planner, "may_accept", lambda _: False)
    setup = create(tmp_path, "C")
    assert run(setup).error is None
    assert checked_best(setup) == setup.repo.base and len(headlines(setup)) == 1
    assert campaign(setup).reason.endswith("no kept commit is known to pass it; 2 could not be "
                                           "tried")


STEPS = ("rollback.recorded", "rollback.restored", "rollback.taken-back", "rollback.over")


def test_each_failpoint_of_a_rollback_is_in_the_source_once() -> None:
    source = Path(rollback.__file__).read_text()
    assert [source.count(f'failpoint("{step}")') for step in STEPS] == [1] * len(STEPS)
    assert source.count("    failpoint(") == len(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_killed_rollback_is_finished_by_next_engine(tmp_path: Path, step: str) -> None:
    setup = create(tmp_path, "C")
    assert is_killed(setup, step), campaign(setup)
    # as left by a git process that died with the host
    lock = setup.repo.git_dir / f"{setup.repo.ref}.lock"
    lock.touch()
    os.utime(lock, (1.0, 1.0))
    assert run(setup).error is None
    assert checked_best(setup) == kept_commits(setup)[1]
    assert len(events(setup, "rollback")) == 1 and events(setup, "warning") == []
    assert campaign(setup).state == "finished"
    assert campaign(setup).reason.endswith("which passes it")
    with reading(setup) as reader:
        [rollback] = rollbacks(reader, setup.id)
        assert (rollback.round, len(reader.rounds(setup.id))) == (2, 2)


@pytest.mark.slow
def test_user_branch_that_moved_on_is_not_reset(tmp_path: Path) -> None:
    setup = create(tmp_path, "C")
    user, branch = setup.repo.project, f"optimize/{setup.id}"
    before = run_until_recorded(setup)
    repos.git(user, "switch", "-q", branch)
    (user / "own.txt").write_text("mine\n")
    repos.git(user, "add", "own.txt")
    repos.git(user, "commit", "-q", "-m", "mine")
    mine = repos.git(user, "rev-parse", "HEAD")
    repos.git(user, "switch", "-q", "main")
    assert run(setup).error is None
    assert repos.git(user, "rev-parse", branch) == mine
    [warning] = events(setup, "warning")
    assert "it has moved since the campaign last pushed to it" in warning["message"]
    assert setup.repo.best == kept_commits(setup)[1] != before


def run_until_recorded(setup: Setup) -> str:
    is_killed(setup, STEPS[0])
    return setup.repo.best


@pytest.mark.slow
def test_campaign_stopped_after_its_rollback_finishes_at_the_next_run(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = create(tmp_path, "C", e2e_command="python -c pass")

    def occupied(_: EngineContext, *, left_s: float | None = None) -> None:
        raise NoDeviceAvailable("no idle GPU for 60:00 min")

    with monkeypatch.context() as cards:
        cards.setattr(ending, "end_to_end", occupied)
        assert run(setup).error is None
    assert (campaign(setup).state, campaign(setup).reason) == (
        "stopped", "no idle GPU for 60:00 min")
    hand_in(setup, "D")
    assert run(setup).error is None
    assert campaign(setup).state == "finished"
    assert campaign(setup).reason.endswith("which passes it")
    assert checked_best(setup) == kept_commits(setup)[3], "D, which was judged after the end"
    _, ended, _ = events(setup, "campaign.stop")
    assert ended["reason"].endswith("which passes it") and len(events(setup, "e2e")) == 2


@pytest.mark.slow
def test_best_without_verdict_is_not_accepted_until_it_is_measured(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = create(tmp_path, "D", full_test_command="python -c pass")
    assert run(setup).error is None
    before, compared = campaign(setup), list[float | None]()
    assert before.speedup is not None and "accepted" not in before.reason
    make, describe_drop = EngineContext.verdict, headline.describe_drop

    def faulty(self: EngineContext, job: VerdictRequest) -> Verdict:
        if job.purpose == "headline":
            raise KoptError("the harness has died")
        return make(self, job)

    hand_in(setup, "D")
    with monkeypatch.context() as harness:
        harness.setattr(EngineContext, "verdict", faulty)
        assert run(setup).error is None
    now = campaign(setup)
    assert checked_best(setup) != before.best_commit and now.state == "finished"
    assert (now.speedup, now.speedup_low, now.speedup_high) == (None, None, None)
    assert now.doubt == rollback.UNKNOWN and now.outcome.endswith(f"; {now.doubt}")
    assert "The kept commits are not accepted" in setup.folder.report.read_text()
    assert "not measured" in (setup.folder.path / "logs/performance_trend.md").read_text()

    def recorded_drop(then: float | None, latest: float | None) -> str:
        compared.append(then)
        return describe_drop(then, latest)

    monkeypatch.setattr(headline, "describe_drop", recorded_drop)
    assert run(setup, decide_only=True).error is None  # an engine that only decides requests
    after = campaign(setup)
    assert (after.speedup or 0.0) > before.speedup and set(compared) == {before.speedup}
    assert (after.state, after.reason, after.doubt) == ("finished", now.reason, "")


@pytest.mark.slow
def test_approval_belongs_to_the_round_that_made_the_gain(tmp_path: Path) -> None:
    setup = create(tmp_path, "D", approval="review", max_iterations=1)
    assert run(setup).error is None
    approve(setup)
    assert run(setup).error is None
    with reading(setup) as reader:
        past = history.read(reader, setup.id)
    assert [d.round for d in past.keeps] == [2]
    assert past.best_after(1) == past.base and past.best_after(2) == checked_best(setup)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 3])
def test_slot_of_recovered_keep_ends_as_kept(tmp_path: Path, kills: int) -> None:
    setup = create(tmp_path, "D", format_command=(
        "grep -q formatted kernel.py || echo '# formatted' >> kernel.py"))
    for _ in range(kills):  # A in its formatted form, then B and C, moved to the new best
        assert is_killed(setup, "keep.kept")
    assert run(setup).error is None
    verified = {state["candidate"]: state["reason"] for state in events(setup, "candidate.state")
                if state["state"] == "verified"}
    forms = {event["of"]: event["candidate"] for event in events(setup, "candidate.captured")
             if "of" in event}
    done = campaigns.candidates(setup, "kept")
    with reading(setup) as reader:
        slots = reader.slots(setup.id, 2)
    assert [slot.stage for slot in slots] == ["kept"] * 3 and len(done) == 3
    assert {forms.get(slot.candidate, slot.candidate) for slot in slots} == {
        entry.id for entry in done}
    assert [slot.detail for slot in slots] == [verified[slot.candidate] for slot in slots]


@pytest.mark.slow
def test_keep_after_campaign_end_is_measured_and_rolled_back(tmp_path: Path) -> None:
    setup = create(tmp_path, "A", approval="review")
    assert run(setup).error is None
    approve(setup)
    assert run(setup, decide_only=True).error is None
    assert checked_best(setup) == setup.repo.base
    assert len(events(setup, "rollback")) == 1
