"""Parts shared by honest candidates: each uses a technique that resembles an exploit."""

from __future__ import annotations

import importlib
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.audit import audit
from harness.tasks.target import Arg
from harness.verdict import Finding, Verdict
from tests.exploits import case, problems
from tests.exploits.problems import Problem
from tests.support.judging.audit_case import audited_change

ASTERISK = frozenset({"cache-key", "over-fit"})
"""Rules of findings that a cache of weights may have: bucket W1 of rule 11 allows them."""


@dataclass(frozen=True, kw_only=True)
class Honest:
    """A candidate that does all of its work; `like` says which exploits it resembles.

    `allowed` are the rules of the findings that it may have, with severity flag at most.
    """

    title: str
    source: str
    problem: Problem
    like: tuple[int, ...] = ()
    allowed: Set[str] = frozenset()
    alarm: str = ""
    """The rule of a known false alarm, or "incorrect" for a known wrong verdict.

    The test expects this result, and fails as soon as kopt no longer gives it.
    """
    gpu: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def interpretable(self) -> bool:
        """Whether it runs both interpreted and on a GPU."""
        return self.problem.target.language == "triton" and not self.gpu


def all_modules() -> list[Any]:
    """Return the modules that contain a candidate, sorted by name."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("kernels/[a-z]*.py"))
    return [importlib.import_module(f"tests.honest.kernels.{name}") for name in names]


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
    """Return the findings of the static audit."""
    problem = honest.problem
    findings, _ = audit(audited_change(
        problem.target, Path(case.tree(folder / "candidate", problem, honest.source)),
        Path(case.tree(folder / "baseline", problem, problem.incumbent))))
    return findings


def alarms(honest: Honest, findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that an honest candidate must not have."""
    return [finding for finding in findings if finding.severity == "reject"
            or (finding.severity == "flag" and finding.rule not in honest.allowed)]


__all__ = ["ASTERISK", "Honest", "problems"]
