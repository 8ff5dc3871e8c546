"""Campaign histories that are built decision by decision."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from engine.history.history import CampaignHistory
from engine.journal.judged_rows import DecisionRow, VerdictRow
from engine.journal.records import Candidate, Round
from harness.verdict import Row, Verdict
from tests.support.dashboards import samples


class HistoryBuilder:
    """Builds a history, decision by decision."""

    def __init__(self, folder: Path = Path("/nowhere")) -> None:
        self.folder = folder
        self.rounds = [self._round(1, "baseline")]
        self.decisions: list[DecisionRow] = []
        self.verdicts: dict[int, VerdictRow] = {}
        self.candidates: dict[str, Candidate] = {}

    def round(self, outcome: Any, *decisions: tuple[Any, ...]) -> HistoryBuilder:
        """Add a round; a decision is its kind, its speedup (None if wrong) and extra fields."""
        n = len(self.rounds) + 1
        self.rounds.append(self._round(n, outcome))
        for kind, speedup, *more in decisions:
            self.decide(n, kind, speedup, **(more[0] if more else {}))
        return self

    def decide(self, n: int, kind: Any, speedup: float | None, *, actor: str = "engine",
               at: float | None = None, timed: bool = True, state: Any = None,
               body: Verdict | None = None) -> None:
        number = len(self.decisions) + 1
        name = f"c{number}"
        verdict = body or verdict_of(speedup, timed)
        self.verdicts[number] = VerdictRow(
            id=number, campaign="c", candidate=name, purpose="verify", incumbent_tree="t",
            harness_version="1", valid=verdict.valid, correct=verdict.correct,
            latency_us=verdict.latency_us, speedup=verdict.speedup, low=None, high=None,
            body=msgspec.json.encode(verdict), at=at or n * 10.0 + 4)
        self.decisions.append(DecisionRow(
            id=number, campaign="c", candidate=name, verdict=number, round=n, kind=kind,
            reason="r", actor=actor, commit=f"k{number}" if kind == "keep" else "",
            at=at or n * 10.0 + 5))
        self.candidates[name] = samples.candidate(
            name, "c", round=n, state=state or ("kept" if kind == "keep" else "closed"),
            hypothesis=f"idea {number}", bottleneck="b1 memory", patch_path=f"{name}.patch")

    @property
    def history(self) -> CampaignHistory:
        return CampaignHistory(folder=self.folder, base="b0", rounds=tuple(self.rounds),
                    decisions=tuple(self.decisions), verdicts=self.verdicts,
                    candidates=self.candidates)

    @staticmethod
    def _round(n: int, outcome: Any) -> Round:
        return Round(campaign="c", n=n, scope="global", incumbent=f"best{n}", started_at=n * 10.0,
                     ended_at=None if outcome is None else n * 10.0 + 9, outcome=outcome)


def verdict_of(speedup: float | None, timed: bool = True) -> Verdict:
    if speedup is None:
        return samples.verdict(correct=False, latency_us=None, latency_kind=None, speedup=None,
                               speedup_low=None, speedup_high=None)
    if not timed:
        return samples.verdict(latency_us=None, latency_kind=None, speedup=None, speedup_low=None,
                               speedup_high=None)
    return samples.verdict(latency_us=10.0 / speedup, speedup=speedup, speedup_low=speedup * 0.99,
                           speedup_high=speedup * 1.01)


def mixed(speedup: float, *, worst: float = 0.6, **fields: Any) -> dict[str, Any]:
    """Return as `body` a verdict that is surely faster in one class and slower in another."""
    rows = tuple(Row(config_class=name, correct=True, outcome=outcome, latency_us=10.0,
                     log_ratio=math.log(ratio), stderr=0.001, pairs=6)
                 for name, outcome, ratio in (("tall", "faster", 1.2), ("odd", "slower", worst)))
    return {"body": samples.verdict(
        latency_us=10.0 / speedup, speedup=speedup, speedup_low=speedup * 0.99,
        speedup_high=speedup * 1.01, rows=rows, **fields)}
