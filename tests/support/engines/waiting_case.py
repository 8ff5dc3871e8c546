"""A campaign whose gains above 2x wait for a person, on a kernel of four independent costs.

`instant_verdicts` reads the costs instead of measuring them, so that a campaign takes a second.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest

from engine.campaign import setup as campaigns_of
from engine.campaign.setup import Setup
from engine.history import history
from engine.history.history import CampaignHistory
from engine.journal.records import Candidate
from engine.journal.write import request
from tests.support.benchmarks import benchmark_case
from tests.support.engines import campaigns
from tests.support.engines import instant_verdicts as instant

COSTS = {"A": 200.0, "B": 30.0, "C": 30.0, "D": 30.0}
LARGE = {"A": 10.0}
"""2.9 times as fast, so it waits."""
SMALL = {"B": 5.0}
"""Faster on any base, and by less than 2x."""
RIVAL = {"A": 100.0}
"""1.5 times as fast; it changes the same line as LARGE."""
SECOND = {"B": 2.0, "C": 2.0, "D": 2.0}
"""More than 2x on top of LARGE, so it waits as well."""
LARGER = {"A": 1.0, "B": 2.0, "C": 2.0, "D": 2.0}
"""Faster than LARGE; it changes the same line."""


def instant_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer every request for a verdict from the costs that the two trees declare."""
    instant.install(monkeypatch, lambda setup, tree: sum(_costs(setup, tree).values()))


def source(**costs: float) -> str:
    """Return the kernel with some costs; lines between them let patches apply independently."""
    lines = [line for name, cost in (COSTS | costs).items()
             for line in (f"{name} = {cost}", *[f"# {name.lower()}"] * 8)]
    return "\n".join([*lines, "COST = A + B + C + D", "", "def err(m):", "    return 0", ""])


def create(root: Path, **fields: Any) -> Setup:
    return campaigns_of.create(root / "w", benchmark_case.one_round(
        root / "p", {"kernel.py": source()},
        **{"approval": "flagged", "max_iterations": 20, **fields}))


def try_change(setup: Setup, costs: dict[str, float], name: str, *,
               of: dict[str, float] | None = None) -> Candidate:
    """Submit a change of the baseline, or of costs `of`; run the campaign; return the candidate."""
    before = {candidate.id for candidate in campaigns.candidates(setup)}
    hand_in(setup, costs, name, of=of)
    engine = campaigns.run(setup)
    assert engine.error is None, engine.error
    return next(candidate for candidate in campaigns.candidates(setup)
                if candidate.id not in before and not candidate.form_of)


def hand_in(setup: Setup, costs: dict[str, float], name: str, *,
            of: dict[str, float] | None = None) -> None:
    texts = [source(**(of or {})), source(**costs)]
    (setup.folder.inbox / f"{name}.patch").write_text("".join(difflib.unified_diff(
        *(text.splitlines(keepends=True) for text in texts), "a/kernel.py", "b/kernel.py")))


def decide(setup: Setup, verb: str, candidate: Candidate, **expected: object) -> str:
    """Send a person's decision to the ended campaign; run an engine and return its answer."""
    number = request(setup.workspace, setup.id, verb, by="ann@test",  # type: ignore[arg-type]
                     candidate=candidate.id, **expected)  # type: ignore[arg-type]
    assert campaigns.run(setup, decide_only=True).error is None
    with campaigns.reading(setup) as reader:
        return next(c.outcome for c in reader.controls(setup.id) if c.id == number)


def past(setup: Setup) -> CampaignHistory:
    with campaigns.reading(setup) as reader:
        return history.read(reader, setup.id)


def now(setup: Setup, candidate: Candidate) -> Candidate:
    with campaigns.reading(setup) as reader:
        return reader.candidate(candidate.id, setup.id)


def costs_at(setup: Setup, commit: str) -> dict[str, float]:
    """Return the costs that differ from the baseline's at a commit."""
    found = _costs(setup, commit)
    return {name: cost for name, cost in found.items() if cost != COSTS[name]}


def _costs(setup: Setup, tree: str) -> dict[str, float]:
    text = setup.repo.read(tree, "kernel.py").decode()
    return {name: float(text.split(f"{name} = ")[1].split("\n")[0]) for name in COSTS}
