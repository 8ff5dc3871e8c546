"""A screening judges a copy of a slot's files by the rules of candidates, and records nothing."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.verify import screener
from engine.verify.fleet import Fleet
from engine.verify.screener import Screener
from harness.errors import InputError
from harness.isolation.zygote_client import WarmStart
from harness.verdict import Verdict
from tests.support.engines import campaigns

FLIP = """
import os, sys, time
os.chdir(sys.argv[1])
while True:
    for target in sys.argv[2:] * 20:
        os.symlink(target, "new")
        os.rename("new", "link")
        time.sleep(0.001)
    os.remove("link"), os.mkdir("link"), os.mkfifo("link/pipe"), os.remove("link/pipe")
    os.rmdir("link")
"""


class Slot:
    """A slot's worktree and its screener."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.tree = self.setup.repo.worktree("s1", self.setup.repo.base)
        self.scratch = self.setup.folder.fresh_scratch("s1")
        self.fleet = Fleet([(self.setup.device, WarmStart(None))], retry_s=1.0, limit_s=1.0)
        self.screener = Screener(self.setup, self.fleet, slot="s1", worktree=self.tree,
                                 base=self.setup.repo.base, scratch=self.scratch)

    def screen(self) -> Verdict:
        try:
            return self.screener(threading.Event(), lambda text: None)
        finally:
            assert list(self.scratch.iterdir()) == []


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    return campaigns.create(tmp_path_factory.mktemp("screened"))


@pytest.fixture
def slot(setup: Setup) -> Slot:
    return Slot(setup)


def state(setup: Setup) -> tuple[object, ...]:
    with campaigns.reading(setup) as reader:
        return (len(reader.events(campaign=setup.id)), reader.candidates(setup.id),
                reader.verdicts(setup.id), reader.decisions(setup.id), setup.repo.best,
                sorted(path.name for path in setup.trees.iterdir()))


def test_screening_is_quick_shows_only_some_evidence_and_is_not_recorded(slot: Slot) -> None:
    slot.setup.tree(slot.setup.repo.base)
    before = state(slot.setup)
    (slot.tree / "scale.c").write_text(campaigns.FASTER)
    (slot.tree / "notes.md").write_text("mine")
    verdict = slot.screen()
    assert verdict.correct and verdict.effort == "quick" and verdict.speedup is not None
    assert verdict.notes[0] == screener.NOTE and "notes.md" in verdict.notes[1]
    assert {fact.kind for fact in verdict.evidence} <= set(screener.SHOWN)
    assert state(slot.setup) == before
    assert (slot.tree / "notes.md").exists()


@pytest.mark.parametrize(("harm", "told"), [
    (lambda tree: None, "nothing is changed"),
    (lambda tree: (tree / "scale.c").write_bytes(b"x" * (5 << 20)), "left out scale.c (larger"),
    (lambda tree: (tree / "new.so").write_bytes(b"\0ELF"), "nothing is changed"),
    (lambda tree: (tree.rename(f"{tree}.old"), tree.symlink_to(f"{tree}.old")),
     "the worker removed its worktree"),
    (lambda tree: shutil.rmtree(tree), "the files cannot be copied"),
    (lambda tree: [(tree / f"{n}.md").touch() for n in range(300)] and None, "nothing is changed"),
    (lambda tree: (tree / "scale.c").write_text("<<<<<<< a\nx\n=======\ny\n>>>>>>> b\n"),
     "conflict markers")])
def test_files_that_make_no_candidate_raise_an_error(
        slot: Slot, harm: Callable[[Path], object], told: str) -> None:
    harm(slot.tree)
    with pytest.raises(InputError) as error:
        slot.screen()
    assert told in str(error.value)


@pytest.mark.parametrize(("path", "told"), [
    ("reference.py", "reference.py is frozen"), ("task.yaml", "task.yaml is frozen")])
def test_files_that_break_a_rule_are_rejected_unmeasured(slot: Slot, path: str, told: str) -> None:
    (slot.tree / "scale.c").write_text(campaigns.FASTER)
    (slot.tree / path).write_text("nothing")
    verdict = slot.screen()
    assert (verdict.valid, verdict.rejected_reason) == (False, told)
    (slot.tree / path).unlink()
    assert slot.screen().rejected_reason == told


def test_worker_that_changes_its_files_during_a_screening_reaches_nothing_outside(
        slot: Slot, tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir(mode=0o500)
    (secret := tmp_path / "secret").write_text("secret")
    secret.chmod(0o400)
    (slot.tree / "reference.py").write_text("nothing")
    reasons: list[str | None] = []
    with subprocess.Popen([sys.executable, "-c", FLIP, slot.tree, outside, secret, "/"]) as worker:
        try:
            for _ in range(10):
                with contextlib.suppress(InputError):  # a file was gone before it was copied
                    reasons.append(slot.screen().rejected_reason)
        finally:
            worker.kill()
    assert outside.stat().st_mode & 0o777 == 0o500 and secret.stat().st_mode & 0o777 == 0o400
    assert "reference.py is frozen" in reasons
