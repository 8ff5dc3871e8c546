"""The static audit of a candidate, and whether its gain transfers beyond the benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.audit import audit
from harness.audit.findings.tree_diff import Changes
from harness.audit.static import AuditedChange
from harness.audit.transfer import looks_like_weight, transfer
from harness.correctness.check import CandidateFailed
from harness.settings import Trees
from harness.tasks.target import Target
from harness.verdict import Finding, TraceStep, Transfer


class CandidateAudit:
    """Audits a candidate's sources; a finding that rejects it raises CandidateFailed."""

    def __init__(self, target: Target, trees: Trees) -> None:
        self._target, self._trees = target, trees
        self._change: AuditedChange | None = None
        self.transfer: Transfer | None = None
        self.findings: list[Finding] = []

    def run(self) -> None:
        """Read the sources, before anything of the candidate runs."""
        self._change = AuditedChange(
            self._target, Changes(Path(self._trees.candidate), Path(self._trees.reference)))
        findings, self.transfer = audit(self._change)
        self._add(findings)

    @property
    def should_trace(self) -> bool:
        """Whether the candidate's cache must be observed over several training steps."""
        return (self.transfer is not None and self.transfer.remembers
                and not self._target.is_compiled)

    def add_trace(self, steps: tuple[TraceStep, ...] | None) -> None:
        """Audit the candidate's cache again, with its hits over several steps."""
        if self._change is None or self.transfer is None or steps is None:
            return
        before = self.transfer.finding()
        self.transfer = transfer(self._change, weights=self.weights, trace=steps)
        after = self.transfer.finding()
        if after != before:
            self.findings = [finding for finding in self.findings if finding != before]
            self._add([after] if after is not None else [])

    @property
    def weights(self) -> set[str]:
        """The arguments that are weights, guessed by name where the task declares none."""
        return {arg.name for arg in self._target.args if arg.weight} or {
            arg.name for arg in self._target.args if looks_like_weight(arg.name)}

    def _add(self, findings: Sequence[Finding]) -> None:
        self.findings += findings
        for finding in findings:
            if finding.severity == "reject":
                raise CandidateFailed(f"audit: {finding.detail}")
