"""The settings of one evaluation or loop, and the trees it compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.case import DISTRIBUTIONS
from harness.timing.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Trees:
    """Folders with the project as the candidate, the incumbent and the baseline have it."""

    candidate: str
    incumbent: str
    reference: str


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to judge; the same for every candidate of a campaign but for `plan.alpha`."""

    scratch: str
    plan: Plan = field(default_factory=Plan)
    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    distributions: tuple[str, ...] = DISTRIBUTIONS
    candidate_id: str = ""
    incumbent_tree: str = ""
    wall_s: float | None = None
    """Seconds that one runner of a kernel may take, None for the usual of its kind."""
    static_audit: bool = True
    """Read the candidate's sources before anything runs; without it the dynamic checks show what
    they catch alone."""
    always_time: bool = False
    """Also time a candidate that runs the incumbent's very code: a baseline, an A/A trial."""
    test_command: str = ""
    """The project's own tests, run in the candidate's tree; it must pass before it is timed."""
    full_test_command: str = ""
    """All of the project's tests, run after those."""
    predict: str = ""
    """A card, by a name of `cards`, for which latencies are predicted where none is measured."""
    warm_cache: str = ""
    """A kept cache of compilers that both sides of a command target start with a copy of."""
    keep_cache: str = ""
    """Where to keep the incumbent's as such a cache, if there is none yet."""
    canary: bool = False
    """The candidate is a copy broken on purpose: say whether a command's benchmark shows that."""

    @property
    def tests(self) -> tuple[tuple[str, str], ...]:
        """The commands that test a candidate, by what to call them, in their order."""
        both = (("own tests", self.test_command), ("full tests", self.full_test_command))
        return tuple((name, command) for name, command in both if command)
