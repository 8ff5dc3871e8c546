"""A campaign that keeps three gains, some of which fail the final tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.campaign import setup as campaigns_of
from engine.campaign.setup import Setup
from engine.history import history
from tests.support import repos
from tests.support.benchmarks import benchmark_case
from tests.support.engines.campaigns import campaign, reading

KERNEL = "\n".join(["A = 60.0", *["# a"] * 8, "B = 60.0", *["# b"] * 8, "C = 60.0", *["# c"] * 8,
                    "D = 60.0", *["# d"] * 8, "COST = A + B + C + D", "",
                    "def err(m):", "    return 0", ""])
GAINS = {"A": "A = 5.0", "B": "B = 20.0", "C": "C = 40.0", "D": "D = 50.0"}
"""Edits in the order of keeping; each gains less than the one before."""


def create(root: Path, failing_gain: str, **fields: Any) -> Setup:
    """Make a campaign whose only round keeps A, B and C; tests fail once `failing_gain` is kept."""
    setup = campaigns_of.create(root / "w", benchmark_case.one_round(
        root / "p", {"kernel.py": KERNEL}, **{
            "max_iterations": 3, "full_test_command":
                f"python -c 'import kernel; assert kernel.{failing_gain} == 60'", **fields}))
    for name in "ABC":
        hand_in(setup, name)
    return setup


def hand_in(setup: Setup, name: str) -> None:
    benchmark_case.patch(Path(setup.manifest.project) / "manifest.yaml",
                         setup.folder.inbox / f"{name}.patch",
                         kernel_py=KERNEL.replace(f"{name} = 60.0", GAINS[name]))


def kept_commits(setup: Setup) -> list[str]:
    """Return the kept commits, in order."""
    with reading(setup) as reader:
        return [d.commit for d in history.read(reader, setup.id).keeps]


def checked_best(setup: Setup) -> str:
    """Return the best commit, after checking that journal, clone and files agree on it."""
    noted = (setup.folder.path / "BEST_COMMIT").read_text().strip()
    assert noted == setup.repo.best == campaign(setup).best_commit
    with reading(setup) as reader:
        assert history.read(reader, setup.id).best == noted
    user = setup.repo.project
    assert repos.git(user, "rev-parse", f"refs/heads/optimize/{setup.id}") == noted
    return noted


def events(setup: Setup, kind: str) -> list[dict[str, Any]]:
    with reading(setup) as reader:
        return [json.loads(event.payload) for event in reader.events_of(setup.id, kind)]
