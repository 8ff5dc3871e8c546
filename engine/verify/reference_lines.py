"""Latencies of eager PyTorch and of torch.compile, shown beside verdicts on a module.

They decide nothing. torch.compile is the bar that a rewrite must reach to be worth having; it is no
candidate, since its kernels are a compiler's. The compiled module is judged once, like a candidate,
against the unchanged one; so one verdict has both latencies, and says so if torch.compile fails or
is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from engine.journal.read import Reader
from engine.journal.records import VerdictRow
from engine.markdown import stamp
from harness.benchmark.spec.command_target import CommandTarget
from harness.formats.quantities import latency
from harness.tasks.target import Target
from harness.verdict import REFERENCE_LINE, Evidence, Row, Verdict

NAME, PURPOSE = "compiled", "reference"
"""Candidate and purpose of the verdict on the compiled module."""
LIMIT_S = 600.0
"""Seconds after which torch.compile is given up: it may take long, and decides nothing."""
EAGER, COMPILED = "eager", "torch.compile"
BELOW = ", below the bar"
APPENDED = """

import torch


class ModelNew(Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.forward = torch.compile(super().forward)
"""


@dataclass(frozen=True, kw_only=True)
class ReferenceLatencies:
    """Latencies by config class, us, with the device and the time of their measurement.

    `failure` says why torch.compile was not measured, "" if it was.
    """

    eager: Mapping[str, float]
    compiled: Mapping[str, float]
    device: str = ""
    at: float = 0.0
    failure: str = ""

    def measured(self, utc_offset_s: int | None = None) -> str:
        """Return where and when they were measured, in local time or at an offset from UTC."""
        return f"measured on {self.device or 'this device'}" + (
            f" at {stamp(self.at, utc_offset_s)}" if self.at else "")

    def compare(self, rows: tuple[Row, ...]) -> Iterator[tuple[str, float, str, str]]:
        """Yield each timed class with its latency, us, and its speedups over both in words."""
        for row in rows:
            if row.latency_us is not None:
                words = [f"{other / row.latency_us:.2f}x of {name} ({latency(other)})"
                         + (BELOW if name == COMPILED and other < row.latency_us else "")
                         if (other := known.get(row.config_class)) is not None else ""
                         for name, known in ((EAGER, self.eager), (COMPILED, self.compiled))]
                if any(words):
                    yield row.config_class, row.latency_us, words[0], words[1]


def applies(target: Target | CommandTarget) -> bool:
    """Return whether a target is a PyTorch module, as `kopt new` writes it."""
    return isinstance(target, Target) and target.adapter is not None \
        and target.entry == "Model" and target.language == "python"


def compiled_source(text: bytes) -> bytes:
    """Return a module's source with a ModelNew that is its Model, compiled."""
    return text.rstrip() + APPENDED.encode()


def read(reader: Reader, campaign: str) -> ReferenceLatencies | None:
    """Return a campaign's references, None if its target has none."""
    return of_campaign([row for name in (NAME, "baseline")
                        for row in reader.verdicts(campaign, candidate=name, limit=1)])


def of_campaign(rows: Iterable[VerdictRow]) -> ReferenceLatencies | None:
    """Return the references among a campaign's verdicts."""
    found = {row.purpose: row for row in rows if row.purpose in (PURPOSE, "baseline")}
    if PURPOSE not in found:
        return None
    try:
        verdicts = {purpose: msgspec.json.decode(row.body, type=Verdict)
                    for purpose, row in found.items()}
    except (msgspec.DecodeError, ValueError):  # of another version of kopt
        return None
    return of_verdict(verdicts[PURPOSE], verdicts.get("baseline"), found[PURPOSE].at)


def of_verdict(compiled: Verdict, baseline: Verdict | None = None, at: float = 0.0,
               ) -> ReferenceLatencies:
    """Return both latencies; those of eager PyTorch are the baseline's if torch.compile failed."""
    failure = _failure(compiled)
    rows = compiled.rows
    eager = {row.config_class: row.incumbent_us for row in rows if row.incumbent_us is not None}
    of_baseline = {row.config_class: row.latency_us for row in (baseline.rows if baseline else ())
                   if row.latency_us is not None}
    return ReferenceLatencies(
        eager=of_baseline | eager, device=compiled.device, at=at, failure=failure,
        compiled={} if failure else {row.config_class: row.latency_us for row in rows
                                     if row.latency_us is not None})


def with_lines(verdict: Verdict, references: ReferenceLatencies | None) -> Verdict:
    """Return a verdict with a line for each class that compares it with both references."""
    if references is None or verdict.latency_us is None:
        return verdict
    lines = [f"{name}: {', '.join(filter(None, words))}; {references.measured()}"
             for name, _, *words in references.compare(verdict.rows)]
    lines += [references.failure] if references.failure else []
    return replace(verdict, evidence=(*verdict.evidence, *(
        Evidence(kind=REFERENCE_LINE, detail=line) for line in lines)))


def _failure(compiled: Verdict) -> str:
    if compiled.valid and compiled.correct and compiled.latency_us is not None:
        return ""
    wrong = next((row.note for row in compiled.rows if not row.correct), "it is not measured")
    return f"{COMPILED} is not a reference here: {compiled.rejected_reason or wrong}"
