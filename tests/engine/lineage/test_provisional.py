"""If an engine is killed while it changes the waiting line, the next one finishes the change."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from engine.failpoint import VARIABLE
from engine.history import waiting_line
from engine.journal import lease
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.lineage.commit import FAILPOINTS as KEEP
from engine.lineage.provisional import FAILPOINTS
from engine.repository.campaign_repo import CampaignRepo
from tests.support import repos
from tests.support.dashboards import samples
from tests.support.engines import line_engine
from tests.support.paths import ROOT
from tests.support.programs import forked_command

IN_KEEP = tuple(name for name in KEEP if name not in ("keep.start", "keep.committed"))
"""The steps of a keep after its commit was made."""


def run_engine(root: Path, verb: str, failpoint: str = "") -> int:
    return forked_command.exit_code(lambda: line_engine.main(root, verb), **{VARIABLE: failpoint})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    repos.project(tmp_path / "user")
    writer = Writer(tmp_path / "w")
    repo = CampaignRepo.create(tmp_path / "w" / "rms", "rms", tmp_path / "user")
    writer.add_campaign(samples.campaign(base_commit=repo.base, best_commit=repo.base))
    lease.release(writer, lease.acquire(writer, "rms"))
    writer.close()
    return tmp_path


def opened(root: Path) -> tuple[Reader, CampaignRepo]:
    return Reader(root / "w"), CampaignRepo(root / "w" / "rms", "rms", root / "user")


def assert_on_waiting_line(root: Path) -> None:
    reader, repo = opened(root)
    line = waiting_line.read(reader, "rms")
    assert [(member.id, member.state) for member in line] == [
        ("c1", "waiting"), ("c2", "provisional")]
    assert repo.log(repo.tip, repo.base) == [member.commit for member in line]
    assert repo.best == repo.base
    assert {d.kind: (d.doubts, d.measured) for d in reader.decisions("rms")} == {
        "ask": ("it is large", line_engine.REASON), "provisional": ("", line_engine.REASON)}


def assert_kept(root: Path) -> None:
    reader, repo = opened(root)
    kept = [reader.candidate(name, "rms") for name in ("c1", "c2")]
    assert [candidate.state for candidate in kept] == ["kept", "kept"]
    commits = [candidate.commit for candidate in kept]
    assert repo.log(repo.best, repo.base) == commits and repo.tip == repo.best
    assert not repo.git.find(repo.waiting_ref)
    assert repos.git(root / "user", "rev-parse", "optimize/rms") == repo.best
    keeps = [d for d in reversed(reader.decisions("rms")) if d.kind == "keep"]
    assert [(d.candidate, d.actor, d.commit, d.reason) for d in keeps] == [
        ("c1", "ann", commits[0], line_engine.REASON),
        ("c2", "engine", commits[1], line_engine.REASON)]


def assert_removed(root: Path) -> None:
    reader, repo = opened(root)
    lower, upper = (reader.candidate(name, "rms") for name in ("c1", "c2"))
    assert (lower.state, lower.reason, lower.commit) == ("closed", "rejected by ann", "")
    assert (upper.state, upper.reason) == ("verified", "built on c1, which was rejected by ann")
    assert repo.tip == repo.best == repo.base and not repo.git.find(repo.waiting_ref)
    assert sorted(d.kind for d in reader.decisions("rms")) == [
        "ask", "provisional", "reject", "runner-up"]


@pytest.mark.parametrize("step", FAILPOINTS[:3])
def test_killed_addition_to_the_line_is_completed(root: Path, step: str) -> None:
    assert run_engine(root, "add", step) == -signal.SIGKILL
    assert run_engine(root, "add") == 0
    assert_on_waiting_line(root)


def test_approval_keeps_the_words_of_the_judge(root: Path) -> None:
    """A class's name was taken for the beginning of the doubts."""
    assert run_engine(root, "add") == run_engine(root, "approve") == 0
    assert_kept(root)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["line.approved", "line.settled", *IN_KEEP])
def test_approval_keeps_the_whole_line_even_after_a_kill(root: Path, step: str) -> None:
    assert run_engine(root, "add") == 0
    assert run_engine(root, "approve", step) == -signal.SIGKILL
    assert run_engine(root, "approve") == 0
    assert_kept(root)


@pytest.mark.parametrize("step", ["", "line.dropped"])
def test_rejection_removes_the_line_even_after_a_kill(root: Path, step: str) -> None:
    assert run_engine(root, "add") == 0
    if step:
        assert run_engine(root, "reject", step) == -signal.SIGKILL
    assert run_engine(root, "reject") == 0
    assert_removed(root)


def test_each_failpoint_of_the_line_is_in_the_source_once() -> None:
    source = (ROOT / "engine" / "lineage" / "provisional.py").read_text()
    assert [source.count(f'failpoint("{name}")') for name in FAILPOINTS] == [1] * len(FAILPOINTS)
