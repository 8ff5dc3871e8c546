"""Latencies of eager PyTorch and of torch.compile, shown beside verdicts on a module.

They decide nothing. The compiled module is judged once, like a candidate, against the unchanged
one; so one verdict has both latencies, and says so if torch.compile fails or is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.benchmark.spec.command_target import CommandTarget
from harness.formats.quantities import latency
from harness.tasks.target import Target
from harness.verdict import REFERENCE_LINE, Evidence, Verdict

NAME = "torch.compile"
"""Stands for a candidate in the verdict on the compiled module."""
PURPOSE = "reference-line"
COMPILED = """


class ModelNew(Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.forward = __import__("torch").compile(super().forward)
"""


def applies(target: Target | CommandTarget) -> bool:
    """Return whether a target is a PyTorch module, as `kopt new` writes it."""
    return isinstance(target, Target) and target.adapter is not None \
        and target.entry == "Model" and target.language == "python"


def compiled_source(text: bytes) -> bytes:
    """Return a module's source with a ModelNew that is its Model, compiled."""
    return text.rstrip() + COMPILED.encode()


def with_lines(verdict: Verdict, compiled: Verdict | None) -> Verdict:
    """Return a verdict with a line for each class that compares it with both references."""
    if compiled is None or verdict.latency_us is None:
        return verdict
    return replace(verdict, evidence=(*verdict.evidence, *(
        Evidence(kind=REFERENCE_LINE, detail=line) for line in _lines(verdict, compiled))))


def failure(compiled: Verdict) -> str:
    """Return why torch.compile was not measured, "" if it was."""
    if compiled.valid and compiled.correct and compiled.latency_us is not None:
        return ""
    wrong = next((row.note for row in compiled.rows if not row.correct), "it is not measured")
    return f"{NAME} is no reference here: {compiled.rejected_reason or wrong}"


def _lines(verdict: Verdict, compiled: Verdict) -> Iterator[str]:
    if why := failure(compiled):
        yield why
        return
    references = {row.config_class: row for row in compiled.rows}
    for row in verdict.rows:
        own = references.get(row.config_class)
        if row.latency_us is None or own is None:
            continue
        parts = [f"{other / row.latency_us:.2f}x of {name} ({latency(other)})"
                 for name, other in (("eager", own.incumbent_us), (NAME, own.latency_us))
                 if other is not None]
        yield f"{row.config_class}: {', '.join(parts)}"
