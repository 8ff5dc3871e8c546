"""A recorded candidate is opened by its tree, or by its patch if no tree was recorded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.campaign.setup import Setup
from engine.judge import candidate
from engine.judge.candidate import CandidateTree
from engine.repository.patches.patch import parse
from harness.errors import InputError
from tests.support.engines import campaigns


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return campaigns.create(tmp_path)


def captured(setup: Setup) -> CandidateTree:
    repo = setup.repo
    change = repo.take(repo.base, campaigns.patch(setup), setup.edit)
    return candidate.make(setup, change, repo.base, round=1, slot="fixed", hypothesis="h",
                          bottleneck="")


def test_candidate_is_opened_by_its_tree(setup: Setup) -> None:
    entry = captured(setup)
    path = setup.folder.path / entry.candidate.patch_path
    assert path.read_bytes() == entry.patch.data
    path.unlink()  # opening needs no patch
    assert candidate.load(setup, entry.candidate) == entry


def test_tree_that_differs_from_the_recorded_one_is_refused(setup: Setup) -> None:
    entry = captured(setup)
    setup.repo.store_candidate(entry.id, setup.repo.tree_of(setup.repo.base))
    with pytest.raises(InputError, match="differs from the recorded one"):
        candidate.load(setup, entry.candidate)


def test_candidate_without_tree_is_opened_by_its_patch(setup: Setup) -> None:
    entry = captured(setup)
    setup.repo.git.run("update-ref", "-d", f"refs/kopt/candidates/{entry.id}")
    assert candidate.load(setup, entry.candidate) == entry
    path = setup.folder.path / entry.candidate.patch_path
    path.write_bytes(entry.patch.data + b"+more\n")
    with pytest.raises(InputError, match="differs from the recorded one"):
        candidate.load(setup, entry.candidate)
    path.unlink()
    with pytest.raises(InputError, match="patch cannot be read"):
        candidate.load(setup, entry.candidate)


def test_candidate_id_does_not_depend_on_round_slot_or_hypothesis(setup: Setup) -> None:
    entry = captured(setup)
    again = setup.repo.apply(setup.repo.base, parse(entry.patch.data))
    assert candidate.make(setup, again, setup.repo.base, round=2, slot="s", hypothesis="other",
                          bottleneck="").id == entry.id
    assert msgspec.structs.replace(entry.candidate, round=2).id == entry.id


def test_knobs_are_set_on_a_base_whose_lines_beside_them_have_changed(setup: Setup) -> None:
    change = setup.repo.take(setup.repo.base, campaigns.patch(
        setup, campaigns.KERNEL.replace("FORWARD 1", "FORWARD 2")), setup.edit)
    base = setup.repo.commit(setup.repo.base, change.tree, "kept: FORWARD, the line below PASSES")
    moved = candidate.rebase(setup, captured(setup), base)
    assert moved is not None and moved.candidate.round == 1
    text = setup.repo.read(moved.tree, "scale.c").decode()
    assert text == campaigns.FASTER.replace("FORWARD 1", "FORWARD 2")


def test_knob_that_the_base_has_set_otherwise_is_a_conflict(setup: Setup) -> None:
    change = setup.repo.take(setup.repo.base, campaigns.patch(
        setup, campaigns.FASTER.replace("FORWARD 1", "FORWARD 2")), setup.edit)
    entry = candidate.make(setup, change, setup.repo.base, round=1, slot="fixed", hypothesis="h",
                           bottleneck="")
    base = setup.repo.take(setup.repo.base, campaigns.patch(
        setup, campaigns.KERNEL.replace("PASSES 16", "PASSES 1").replace("[1, 2]", "[1, 2, 3]")
        .replace("FORWARD 1", "FORWARD 3")), setup.edit)
    with pytest.raises(InputError, match="does not apply"):
        candidate.rebase(setup, entry, setup.repo.commit(setup.repo.base, base.tree, "kept"))
