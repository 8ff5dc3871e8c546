"""Runs only the correctness check of a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.case import Errors
from harness.correctness.check import CandidateFailed, CorrectnessCheck
from harness.correctness.tolerance import Tolerance
from harness.devices import inventory
from harness.runners.session import Session
from harness.settings import Settings
from harness.tasks.target import Target
from harness.verdict import Finding
from tests.support.programs import shared_zygotes


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of a check; `reason` is the failure that ended it, "" if it ran to its end."""

    right: bool
    reason: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    errors: dict[str, Errors]

    @property
    def rules(self) -> dict[str, str]:
        return {finding.rule: finding.severity for finding in self.findings}


def check(folder: Path, source: str, of: Target, *, reference: str, baseline: str | None = None,
          **settings: Any) -> Checked:
    """Check a source against a baseline, by default against itself."""
    trees = {}
    for side, text in (("candidate", source), ("baseline", baseline or source)):
        trees[side] = folder / side
        trees[side].mkdir(parents=True)
        (trees[side] / of.source).write_text(text)
        (trees[side] / "reference.py").write_text(reference)
    given = Settings(**({"scratch": str(folder / "scratch"), "wall_s": 60.0} | settings))
    warm = shared_zygotes.zygote(of.language)
    with Session(of, inventory.find("cpu"), given, None, warm) as session, \
            session.oracle(trees["baseline"], None) as oracle:
        made = CorrectnessCheck(session, oracle, Tolerance(session, oracle, trees["baseline"]),
                                lambda *_: None)
        reason = ""
        right = False
        try:
            right = made.run(session.make(trees["candidate"], "candidate"), None)
        except CandidateFailed as failed:
            reason = str(failed)
        return Checked(right=right, reason=reason, findings=tuple(made.findings),
                       notes=tuple(made.notes), errors=dict(made.errors))
