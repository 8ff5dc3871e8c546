"""A commit with the same tree, such as a gain kept again, counts as the same base."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from engine.campaign.setup import Setup
from engine.context import EngineContext
from engine.history import history
from engine.journal.records import Round
from engine.journal.write import Writer
from engine.planning import past_rounds, survey
from engine.workers import template
from engine.workers.template import Template
from tests.support.dashboards import samples
from tests.support.engines import campaigns


@pytest.fixture
def equal_best(tmp_path: Path) -> tuple[Setup, str]:
    """Return a campaign whose best is another commit of the baseline's tree, and the baseline."""
    setup = campaigns.create(tmp_path)
    repo, base = setup.repo, setup.repo.base
    again = repo.commit_tree(repo.tree_of(base), base, "the same files")
    assert repo.advance(base, again) and repo.tip != base
    return setup, base


@contextmanager
def recording(setup: Setup) -> Iterator[EngineContext]:
    writer = Writer(setup.workspace)
    with campaigns.reading(setup) as reader, closing(writer):
        yield cast(EngineContext, SimpleNamespace(setup=setup, reader=reader, writer=writer,
                                                  round=2))


def test_template_that_was_tried_on_an_equal_tree_is_not_offered_again(
        equal_best: tuple[Setup, str], monkeypatch: pytest.MonkeyPatch) -> None:
    setup, base = equal_best
    monkeypatch.setattr(template, "find", lambda target: [
        Template(name=name, op="scale", parameters=(), text="") for name in ("blocked", "wide")])
    with recording(setup) as context:
        for name, tree in (("blocked", setup.repo.tree_of(base)), ("wide", "another")):
            context.writer.add_candidate(samples.candidate(
                name, setup.id, slot=f"rewrite-{name}", base_commit=base, base_tree=tree))
        offered = survey.of_best(context, 2, again=True).templates
    assert [offer.name for offer in offered] == ["wide"]


def test_knobs_searched_on_an_equal_tree_count_as_tried(equal_best: tuple[Setup, str]) -> None:
    setup, base = equal_best
    with recording(setup) as context:
        context.writer.start_round(Round(campaign=setup.id, n=2, scope="global", incumbent=base,
                                         started_at=1.0))
        context.writer.put_slots([samples.slot("planned-1", 2, setup.id, kind="planned",
                                               knobs=("UNROLL",))])
        context.writer.end_round(setup.id, 2, outcome="tie", summary="")
        past = history.read(context.reader, setup.id)
        tried = past_rounds.tried(past, context.reader, setup.id, setup.repo)
    assert frozenset({"UNROLL"}) in tried.knobs
