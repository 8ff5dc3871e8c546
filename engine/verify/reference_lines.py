"""Latencies of eager PyTorch, torch.compile and libraries, shown beside verdicts on a module.

They decide nothing. Compilers and libraries are the bar for a rewrite and not the incumbent: a
baseline that needs them would be hard to reproduce. Each is measured as a candidate against the
unchanged module, and only their ratio counts: verdicts may launch calls in different ways, by
graphs or one by one, and the latencies of one verdict are not those of another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from engine.campaign.baseline_cache import BASELINE
from engine.journal.decoded.recorded import verdict_of
from engine.journal.judged_rows import VerdictRow
from engine.journal.read import Reader
from engine.markdown import stamp
from engine.verify.reference_forms import FORMS
from harness.formats.quantities import latency, speedup
from harness.formats.text import plain
from harness.verdict import REFERENCE_LINE, Evidence, Row, Verdict

PURPOSE = "reference"
"""The purpose of the verdicts on the compiled module and on libraries."""
LIMIT_S = 600.0
"""Seconds after which a reference is given up: it may take long, and decides nothing."""
EAGER = "eager"
BELOW = ", below the bar"
NOISY = ", uncertain"
LEAST_NOISE = 0.01
"""Latencies of different verdicts that differ by a smaller share are called equal."""
STDERRS = 2 * math.sqrt(2)
"""Standard errors of a class that count as noise: two for each of two verdicts."""


@dataclass(frozen=True, kw_only=True)
class ReferenceLatencies:
    """Latencies by config class, us, with the device and the time of their measurement.

    `bars` are those of compilers and libraries by their names, as they would be where eager PyTorch
    has the latency `eager`, and `stderrs` the standard errors of their logarithms; `failure` says
    which of them failed and why, "" if none did.
    """

    eager: Mapping[str, float]
    bars: Mapping[str, Mapping[str, float]]
    stderrs: Mapping[str, Mapping[str, float]]
    device: str = ""
    at: float = 0.0
    failure: str = ""

    def measured(self, utc_offset_s: int | None = None) -> str:
        """Return where and when they were measured, in local time or at an offset from UTC."""
        return f"measured on {self.device or 'this device'}" + (
            f" at {stamp(self.at, utc_offset_s)}" if self.at else "")

    def compare(self, rows: tuple[Row, ...]) -> Iterator[tuple[str, float, str, str]]:
        """Yield a tuple for each timed class that has a reference.

        It has the class's name, its latency in us, its speedup over eager PyTorch in words, and
        its speedups over all other references in words.
        """
        for row in rows:
            if row.latency_us is not None:
                comparisons = [f"{speedup(other / row.latency_us)} of {name} ({latency(other)})"
                               + self._place(row, name, other / row.latency_us)
                               if (other := known.get(row.config_class)) is not None else ""
                               for name, known in ((EAGER, self.eager), *self.bars.items())]
                if any(comparisons):
                    yield (row.config_class, row.latency_us, comparisons[0],
                           ", ".join(filter(None, comparisons[1:])))

    def standing(self, rows: tuple[Row, ...]) -> str:
        """Say whether a verdict is below, level with or above the classes' fastest bars."""
        best = {name: min((known[name], bar) for bar, known in self.bars.items() if name in known)
                for name in {name for known in self.bars.values() for name in known}}
        gaps = [(math.log(best[row.config_class][0] / row.latency_us),
                 self._noise(row, best[row.config_class][1]), best[row.config_class][1])
                for row in rows if row.latency_us and row.config_class in best]
        below = [bar for gap, noise, bar in gaps if gap < -noise]
        if below:
            return f"below the bar in {len(below)} of {len(gaps)} classes " \
                   f"({', '.join(name for name in self.bars if name in below)})"
        position = "above the bar" if all(gap > noise for gap, noise, _ in gaps) else \
            "level with the bar within the noise"
        return f"{position} ({', '.join(self.bars)})" if gaps else ""

    def _place(self, row: Row, bar: str, ratio: float) -> str:
        """Return that a class is below a bar, or that the bar is too noisy to tell, or ""."""
        gap = math.log(ratio)
        if bar != EAGER and gap < -self._noise(row, bar):
            return BELOW
        return NOISY if abs(gap) < STDERRS * self._stderr(row, bar) else ""

    def _noise(self, row: Row, bar: str) -> float:
        """Return the log-ratio by which a class and a bar may differ by chance.

        The noisier of their two verdicts decides.
        """
        return max(LEAST_NOISE, STDERRS * max(row.stderr or 0.0, self._stderr(row, bar)))

    def _stderr(self, row: Row, bar: str) -> float:
        return self.stderrs.get(bar, {}).get(row.config_class, 0.0)


def read(reader: Reader, campaign: str) -> ReferenceLatencies | None:
    """Return a campaign's references, None if none was measured."""
    return of_campaign([row for name in (*(form.key for form in FORMS), BASELINE)
                        if (row := reader.newest_verdict(campaign, name))])


def of_campaign(rows: Iterable[VerdictRow]) -> ReferenceLatencies | None:
    """Return the references among verdicts; None if there are none, or if one is unreadable."""
    by_candidate = {row.candidate: row for row in rows if row.purpose in (PURPOSE, BASELINE)}
    measured = [form.key for form in FORMS if form.key in by_candidate]
    if not measured:
        return None
    try:
        verdicts = {key: verdict_of(row) for key, row in by_candidate.items()}
    except (msgspec.DecodeError, ValueError):  # written by another version of kopt
        return None
    baseline = {row.config_class: row.latency_us for row in verdicts[BASELINE].rows
                if row.latency_us is not None} if BASELINE in verdicts else {}
    return of_verdicts({key: verdicts[key] for key in measured}, baseline,
                       max(by_candidate[key].at for key in measured))


def of_verdicts(measured: Mapping[str, Verdict], baseline: Mapping[str, float], at: float = 0.0,
                ) -> ReferenceLatencies:
    """Return the references: verdicts by the forms' keys, baseline latencies by class, us."""
    bars, stderrs = dict[str, Mapping[str, float]](), dict[str, Mapping[str, float]]()
    failures = list[str]()
    for form in FORMS:
        if (verdict := measured.get(form.key)) is None:
            continue
        if why := _failure(verdict):
            failures.append(f"{form.name} is not a reference here: {why}")
        else:
            bars[form.name] = {
                row.config_class: _ratio(row) * eager_us for row in verdict.rows
                if row.latency_us and row.incumbent_us
                and (eager_us := baseline.get(row.config_class))}
            stderrs[form.name] = {row.config_class: row.stderr or 0.0 for row in verdict.rows}
    return ReferenceLatencies(eager=baseline, bars=bars, stderrs=stderrs, at=at,
                              failure="; ".join(failures),
                              device=next(iter(measured.values())).device)


def _ratio(row: Row) -> float:
    """Return a reference's time divided by the module's.

    One slow pair moves the mean of the pairs' logarithms less than it moves the latencies.
    """
    if row.log_ratio is not None:
        return math.exp(-row.log_ratio)
    return (row.latency_us or math.nan) / (row.incumbent_us or math.nan)


def with_lines(verdict: Verdict, references: ReferenceLatencies | None) -> Verdict:
    """Return a verdict with a line for each class that compares it with the references.

    Verdicts of earlier versions have these lines already.
    """
    if references is None or verdict.latency_us is None or any(
            fact.kind == REFERENCE_LINE for fact in verdict.evidence):
        return verdict
    lines = [f"{name}: {', '.join(filter(None, comparisons))}; {references.measured()}"
             for name, _, *comparisons in references.compare(verdict.rows)]
    lines += [references.failure] if references.failure else []
    return replace(verdict, evidence=(*verdict.evidence, *(
        Evidence(kind=REFERENCE_LINE, detail=line) for line in lines)))


def _failure(verdict: Verdict) -> str:
    if verdict.valid and verdict.correct and verdict.latency_us is not None:
        return ""
    return plain(verdict.rejected_reason or next(
        (row.note for row in verdict.rows if not row.correct), "it is not measured"))
