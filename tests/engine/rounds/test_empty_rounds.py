"""The summary of a round without candidates counts slots that failed and that found nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from engine.journal import database
from engine.rounds.round import decisions_in
from harness.isolation import guard
from tests.support.engines import campaigns
from tests.support.engines.history_case import HistoryBuilder


def test_decisions_on_candidates_of_earlier_rounds_are_not_counted_as_new() -> None:
    """A near gain that is measured again, or a runner-up, is decided in a later round."""
    case = HistoryBuilder().round("tie", ("tie", 1.0), ("runner-up", 1.1))
    case.round("tie").decisions[1] = msgspec.structs.replace(case.decisions[1], round=3)
    assert decisions_in(case.history, 2) == "2 candidates: 1 tie"
    assert decisions_in(case.history, 3) == "no new candidate; of earlier rounds: 1 runner-up"
    case.decide(3, "tie", 1.0)
    assert decisions_in(case.history, 3) == "1 candidate: 1 tie; of earlier rounds: 1 runner-up"


def test_keep_of_an_earlier_rounds_candidate_is_counted_in_the_round_that_measured_it() -> None:
    case = HistoryBuilder().round("tie", ("tie", 1.03)).round("tie")
    keep = msgspec.structs.replace(case.decisions[0], id=2, kind="keep", commit="k", at=35.0)
    case.decisions.append(keep)
    assert decisions_in(case.history, 3) == "no new candidate; of earlier rounds: 1 keep"
    case.decisions[1] = msgspec.structs.replace(keep, at=41.0, actor="ann@box")
    assert decisions_in(case.history, 3) == "no new candidate"


@pytest.mark.slow
@pytest.mark.parametrize(("command", "outcome", "summary"), [
    ("sh -c 'case $0 in *planned*) exit 1; esac' {prompt}", "tie",
     "1 slot found nothing better, 1 failed"),
    ("false {prompt}", "failed", "no slot found anything better, 2 failed")])
def test_round_without_candidates_counts_its_slots_by_outcome(
        tmp_path: Path, command: str, outcome: str, summary: str) -> None:
    setup = campaigns.create(tmp_path, max_iterations=1, pool={
        "slots": 2, "workers": 2, "backends": ["cli"],
        "cli": [{"name": "agent", "command": command}]})
    campaigns.run(setup)
    with campaigns.reading(setup) as reader:
        last = reader.rounds(setup.id)[-1]
    assert (last.outcome, last.summary) == (outcome, summary)


def test_agents_cannot_open_the_journal_and_so_cannot_lock_it(tmp_path: Path) -> None:
    """A lock of any process that can read the journal would stop the engine's writes."""
    if reason := guard.confinement_problem():
        pytest.skip(f"agents cannot be confined here: {reason}")
    opens = " || ".join(f"cat {path}" for path in database.files(tmp_path / "w"))
    setup = campaigns.create(tmp_path, max_iterations=1, pool={
        "slots": 1, "backends": ["cli"],
        "cli": [{"name": "agent", "command": f"sh -c '! ({opens})' {{prompt}}"}]})
    assert setup.workspace == tmp_path / "w"
    campaigns.run(setup)
    with campaigns.reading(setup) as reader:
        assert "failed" not in reader.rounds(setup.id)[-1].summary
