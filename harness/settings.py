"""The settings of one evaluation or loop, and the trees it compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.case import DISTRIBUTIONS
from harness.timing.plan import Plan

Canary = Literal["", "broken", "emptied"]
"""A candidate whose files are invalid, or one that builds and computes nothing."""


@dataclass(frozen=True, kw_only=True)
class Trees:
    """The folders of the candidate's, the incumbent's and the baseline's project."""

    candidate: str
    incumbent: str
    reference: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to judge. Of the statistical settings, only `plan.alpha` differs within a campaign."""

    scratch: str
    plan: Plan = field(default_factory=Plan)
    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    distributions: tuple[str, ...] = DISTRIBUTIONS
    candidate_id: str = ""
    incumbent_tree: str = ""
    wall_s: float | None = None
    """Seconds that one runner may take; None: the default for C, Python or GPU kernels. For a
    benchmark of an emptied copy, which may never end: those of its run; None: the target's."""
    static_audit: bool = True
    """Audit the candidate's sources before anything runs; off where a test needs later checks."""
    always_time: bool = False
    """Also time a candidate that is identical to the incumbent: a baseline, an A/A trial."""
    test_command: str = ""
    """A test command, run in the candidate's tree; it must pass before the candidate is timed."""
    test_wall_s: float = 900.0
    """Seconds that one test command may take."""
    full_test_command: str = ""
    """The longer test command; it runs after `test_command`."""
    predict: str = ""
    """A card in the datasheets, by name; latencies on it are predicted if none is measured."""
    warm_cache: str = ""
    """A kept compiler cache; both sides of a command target start with a copy of it."""
    keep_cache: str = ""
    """Where to store the incumbent's compiler cache, if there is none yet."""
    canary: Canary = ""
    """How the candidate is wrong on purpose: report whether the benchmark fails on it."""
    outputs: str = ""
    """A folder for what the processes print and write, "" to keep none of it."""

    @property
    def tests(self) -> tuple[tuple[str, str], ...]:
        """Return the commands that test a candidate, with their names, in order."""
        both = (("own tests", self.test_command), ("full tests", self.full_test_command))
        return tuple((name, command) for name, command in both if command)
