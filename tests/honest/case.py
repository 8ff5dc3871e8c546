"""What the honest candidates share: each uses a trick that an exploit could be taken for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.audit import audit
from harness.target import Arg
from harness.verdict import Finding, Verdict
from tests.exploits import case, problems
from tests.exploits.problems import Problem

ASTERISK = frozenset({"cache-key", "over-fit"})
"""What a cache of weights is told of, by rule 11: W1 is allowed, and says so."""


@dataclass(frozen=True, kw_only=True)
class Honest:
    """A candidate that does all of its work; `like` says which exploits it resembles.

    `told` are the rules of findings that it may have, of severity flag at most.
    """

    title: str
    source: str
    problem: Problem
    like: tuple[int, ...] = ()
    told: Set[str] = frozenset()
    alarm: str = ""
    """The rule of an alarm that is false and known, or "incorrect" of a verdict that is: what
    tells of it fails once it is mended.
    """
    gpu: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def interpretable(self) -> bool:
        """Whether it runs both interpreted and on a GPU."""
        return self.problem.target.language == "triton" and not self.gpu


def all_modules() -> list[Any]:
    """Return every module of a candidate, by name."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py")
                   if path.stem != "case" and not path.stem.startswith("test_"))
    return [importlib.import_module(f"tests.honest.{name}") for name in names]


def posed(problem: Problem, *, args: tuple[Arg, ...] | None = None, **fields: Any) -> Problem:
    """Return a problem with other arguments or settings of its target."""
    inputs = {} if args is None else {"args": args}
    return replace(problem, target=replace(problem.target, **inputs, **fields))


def texts(problem: Problem, *, incumbent: str, reference: str) -> Problem:
    return replace(problem, incumbent=incumbent, reference=reference)


def shaped(arg: Arg, *shape: str) -> Arg:
    return replace(arg, shape=shape)


def verdict_on(honest: Honest, folder: Path, device: str = "cpu") -> Verdict:
    plan = {"plan": case.GPU_PLAN} if device != "cpu" else {}
    return case.judge(folder, honest.problem, honest.source, device=device,
                      **(plan | honest.settings))


def of_the_text(honest: Honest, folder: Path) -> list[Finding]:
    """Return what the audit of its text alone finds."""
    problem = honest.problem
    found, _ = audit(problem.target, Path(case.tree(folder / "candidate", problem, honest.source)),
                     Path(case.tree(folder / "baseline", problem, problem.incumbent)))
    return found


def alarms(honest: Honest, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that an honest candidate must not have."""
    return [finding for finding in findings if finding.severity == "reject"
            or (finding.severity == "flag" and finding.rule not in honest.told)]


__all__ = ["ASTERISK", "Honest", "problems"]
