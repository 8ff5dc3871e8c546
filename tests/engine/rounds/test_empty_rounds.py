"""What a round says in which no candidate was made: a failed worker hides no search without a find.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import campaigns


@pytest.mark.slow
@pytest.mark.parametrize(("command", "outcome", "summary"), [
    ("sh -c 'case $0 in *planned*) exit 1; esac' {prompt}", "tie",
     "1 slot found nothing better, 1 failed"),
    ("false {prompt}", "failed", "no slot found anything better, 2 failed")])
def test_round_without_candidates_says_what_its_slots_came_to(
        tmp_path: Path, command: str, outcome: str, summary: str) -> None:
    setup = campaigns.create(tmp_path, max_iterations=1, pool={
        "slots": 2, "workers": 2, "backends": ["cli"],
        "cli": [{"name": "agent", "command": command}]})
    campaigns.run(setup)
    with campaigns.reading(setup) as reader:
        last = reader.rounds(setup.id)[-1]
    assert (last.outcome, last.summary) == (outcome, summary)
