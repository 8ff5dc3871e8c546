"""A keep that is killed at any step is finished once by the next engine."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from engine.failpoint import VARIABLE
from engine.journal import lease
from engine.journal.lease import LeaseLost
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.lineage.commit import FAILPOINTS, KeepReason, commit_candidate
from engine.repository.campaign_repo import CampaignRepo
from harness.errors import Refused
from tests.support import repos
from tests.support.dashboards import samples
from tests.support.engines import keeping_engine, line_engine
from tests.support.engines.keeping_engine import keep_first
from tests.support.paths import ROOT, SUPPORT
from tests.support.programs import forked_command

BRANCH = "optimize/rms"
ENGINE = (sys.executable, str(SUPPORT / "engines/keeping_engine.py"))


def run_engine(root: Path, failpoint: str = "") -> int:
    return forked_command.exit_code(lambda: keeping_engine.main(root), **{VARIABLE: failpoint})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a campaign with one verified candidate; its engine has ended normally."""
    repos.project(tmp_path / "user")
    writer = Writer(tmp_path / "w")
    repo = CampaignRepo.create(tmp_path / "w" / "rms", "rms", tmp_path / "user")
    base = repo.base
    writer.add_campaign(samples.campaign(base_commit=base, best_commit=base))
    held = lease.acquire(writer, "rms")
    line_engine.capture(writer, repo, "c1", line=3)
    lease.release(writer, held)
    writer.close()
    return tmp_path


def assert_kept_once(root: Path) -> str:
    """Check that branch, user's branch and journal agree on one commit; return it."""
    reader = Reader(root / "w")
    repo = CampaignRepo(root / "w" / "rms", "rms", root / "user")
    candidate, campaign = reader.candidate("c1"), reader.campaign("rms")
    assert campaign is not None
    assert candidate.state == "kept"
    commits = repo.log(repo.ref, repo.base)
    assert commits == [candidate.commit] == [campaign.best_commit]
    assert (root / "w" / "rms" / "BEST_COMMIT").read_text() == f"{candidate.commit}\n"
    assert repos.git(root / "user", "rev-parse", BRANCH) == candidate.commit
    assert "c1();" in repo.read(candidate.commit, "kernel.c").decode()
    assert [d.kind for d in reader.decisions("rms")] == ["keep"]
    assert reader.decisions("rms")[0].commit == candidate.commit
    kinds = [e.kind for e in reader.last_events("rms")]
    assert kinds.count("campaign.best") == 1
    assert kinds.count("decision") == 1
    assert "warning" not in kinds
    return candidate.commit


def test_undisturbed_keep_is_recorded_once(root: Path) -> None:
    assert run_engine(root) == 0
    commit = assert_kept_once(root)
    assert run_engine(root) == 0
    assert assert_kept_once(root) == commit


def test_each_failpoint_of_a_keep_is_in_the_source_once() -> None:
    source = (ROOT / "engine" / "lineage" / "commit.py").read_text()
    assert all(source.count(f'failpoint("{name}")') == 1 for name in FAILPOINTS)
    assert source.count("    failpoint(") == len(FAILPOINTS)


@pytest.mark.parametrize("name", FAILPOINTS)
def test_keep_killed_at_each_step_is_finished_once(root: Path, name: str) -> None:
    assert run_engine(root, name) == -signal.SIGKILL
    recorded = len(Reader(root / "w").last_events("rms"))
    assert run_engine(root) == 0
    assert_kept_once(root)
    assert len(Reader(root / "w").last_events("rms")) >= recorded


def test_recovery_killed_repeatedly_is_finished_once(root: Path) -> None:
    for name in FAILPOINTS[FAILPOINTS.index("keep.keeping"):-1]:
        assert run_engine(root, name) == -signal.SIGKILL
    assert run_engine(root) == 0
    assert_kept_once(root)


def test_recovered_commit_has_same_id(root: Path) -> None:
    repo = CampaignRepo(root / "w" / "rms", "rms", root / "user")
    planned = repo.commit(repo.base, repo.candidate_tree("c1"), "faster\n\nless traffic")
    assert run_engine(root, "keep.committed") == -signal.SIGKILL
    assert run_engine(root) == 0
    assert assert_kept_once(root) == planned


def test_keep_killed_at_random_moments_is_finished_once(root: Path) -> None:
    """The signal comes from outside, at any moment, not at a failpoint."""
    moments = random.Random(7)
    for _ in range(4):
        process = subprocess.Popen([*ENGINE, str(root)],
                                   env={**os.environ, "PYTHONPATH": os.getcwd()})
        try:
            process.wait(moments.uniform(0.05, 0.25))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert run_engine(root) == 0
    assert_kept_once(root)


# Keeps that recovery gives up


def test_keep_is_given_up_if_branch_moved(root: Path) -> None:
    assert run_engine(root, "keep.keeping") == -signal.SIGKILL
    repo = CampaignRepo(root / "w" / "rms", "rms", root / "user")
    other = repo.commit(repo.base, repo.candidate_tree("c1"), "someone else's")
    repos.git(repo.git_dir, "update-ref", repo.ref, other)
    assert run_engine(root) == 0
    reader = Reader(root / "w")
    assert reader.candidate("c1").state == "closed"
    assert "moved" in reader.candidate("c1").reason
    assert [d.kind for d in reader.decisions("rms")] == ["reject", "keep"]
    assert repo.best == repo.base  # the journal's best commit
    assert [e.kind for e in reader.last_events("rms")].count("warning") == 2


def test_keep_is_given_up_if_commit_is_missing(root: Path) -> None:
    assert run_engine(root, "keep.keeping") == -signal.SIGKILL
    commit = Reader(root / "w").candidate("c1").commit
    (root / "w/rms/repo.git/objects" / commit[:2] / commit[2:]).unlink()
    assert run_engine(root) == 0
    assert Reader(root / "w").candidate("c1").state == "closed"
    assert "no longer exists" in Reader(root / "w").candidate("c1").reason


def test_keep_on_outdated_base_is_refused(root: Path) -> None:
    writer = Writer(root / "w")
    lease.acquire(writer, "rms")
    repo = CampaignRepo(root / "w" / "rms", "rms", root / "user")
    line_engine.capture(writer, repo, "c2", line=20)
    commit = keep_first(writer, repo).commit
    late = Reader(root / "w").candidate("c2")
    tree = repo.candidate_tree("c2")
    why = KeepReason(message="m", reason="r", actor="judge", round=1)
    with pytest.raises(Refused, match="moved"):
        commit_candidate(writer, repo, late, tree, why)
    rebased = repo.apply(commit, repo.diff(late.base_tree, tree))
    late = msgspec.structs.replace(late, id="c3", base_commit=commit, base_tree=rebased.base_tree)
    writer.add_candidate(late)
    kept = commit_candidate(writer, repo, late, rebased.tree, why)
    assert repo.log(repo.best, repo.base) == [commit, kept.commit]
    text = repo.read(kept.commit, "kernel.c").decode()
    assert "c1();" in text
    assert "c2();" in text


def test_refused_push_is_reported_and_gain_kept(root: Path) -> None:
    repo = CampaignRepo(root / "w" / "rms", "rms", root / "user")
    repos.git(root / "user", "switch", "-q", "-c", BRANCH)
    assert run_engine(root) == 0
    reader = Reader(root / "w")
    assert reader.candidate("c1").state == "kept"
    assert repo.best == reader.candidate("c1").commit
    assert repos.git(root / "user", "rev-parse", BRANCH) == repo.base
    warnings = [e for e in reader.last_events("rms") if e.kind == "warning"]
    assert len(warnings) == 1
    assert b"checked out" in warnings[0].payload


def test_engine_without_lease_moves_no_branch(root: Path) -> None:
    stale, fresh = Writer(root / "w"), Writer(root / "w")
    held = lease.acquire(stale, "rms")
    fresh.put_lease(msgspec.structs.replace(held, epoch=held.epoch + 1))
    repo = CampaignRepo(root / "w" / "rms", "rms", root / "user")
    with pytest.raises(LeaseLost):
        keep_first(stale, repo)
    assert repo.best == repo.base
    assert Reader(root / "w").candidate("c1").state == "verified"


def test_stale_lock_does_not_stop_recovery(root: Path) -> None:
    assert run_engine(root, "keep.keeping") == -signal.SIGKILL
    lock = root / "w" / "rms" / "repo.git" / f"refs/heads/{BRANCH}.lock"
    lock.write_text("")
    os.utime(lock, (time.time() - 60,) * 2)
    assert run_engine(root) == 0
    assert_kept_once(root)
