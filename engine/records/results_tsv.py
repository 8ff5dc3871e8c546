"""results.tsv: every trial of a search and every verdict of a campaign, from its journal."""

from __future__ import annotations

from collections.abc import Sequence

from engine.history import history
from engine.journal.decoded.recorded import trial_of, verdict_of
from engine.journal.judged_rows import DecisionRow
from engine.journal.read import Reader
from engine.journal.records import Candidate
from harness.search.trials import trials_tsv
from harness.search.trials.trials import Trial
from harness.verdict import Verdict

LOOP, REGIME = "campaign", "verdict"


def of_trials(trials: Sequence[Trial], *, round: int, slot: str, model: str,
              gpu: str) -> list[tuple[str, ...]]:
    """Return the file's rows for a slot's trials."""
    return [trials_tsv.row(trial, model=model, gpu=gpu, experiment=f"{round}.{slot}.{trial.number}")
            for trial in trials]


def page(reader: Reader, campaign: str, *, model: str, gpu: str) -> str:
    """Return results.tsv, its rows in the order in which their results became known.

    A round that was interrupted may repeat a trial; with the same result it is listed once.
    """
    past = history.read(reader, campaign)
    trials: dict[tuple[str, ...], float] = {}
    for recorded in reader.trials(campaign):
        row, = of_trials([trial_of(recorded)], round=recorded.round, slot=recorded.slot,
                         model=model, gpu=gpu)
        trials.setdefault(row, recorded.at)
    rows = [(at, row) for row, at in trials.items()]
    rows += [(row.at, _row(f"{row.purpose}.{row.candidate[:12]}", row.purpose, verdict_of(row),
                           model, gpu, row.purpose)) for row in past.verdicts.values()
             if row.purpose in ("baseline", "headline", "headline-doubted", "e2e")]
    rows += [(decision.at, _decided(decision, past.candidates.get(decision.candidate),
                                    verdict_of(past.verdicts[decision.verdict]), model, gpu))
             for decision in past.decisions if decision.verdict in past.verdicts]
    rows.sort(key=lambda entry: entry[0])
    return trials_tsv.HEAD + trials_tsv.text(row for _, row in rows)


def _decided(decision: DecisionRow, candidate: Candidate | None, verdict: Verdict, model: str,
             gpu: str) -> tuple[str, ...]:
    if decision.kind == "keep":
        tag = "kept"
    elif verdict.valid and not verdict.correct and not verdict.not_judged:
        tag = "revert"
    else:
        tag = "rejected" if not verdict.valid or decision.kind == "reject" else "tried"
    slot = candidate.slot if candidate else ""
    hypothesis = f"{candidate.hypothesis}; " if candidate else ""
    return _row(f"{decision.round}.{slot}.{decision.candidate[:12]}", tag, verdict, model, gpu,
                f"{decision.kind}: {hypothesis}{decision.reason}", commit=decision.commit)


def _row(experiment: str, tag: str, verdict: Verdict, model: str, gpu: str, why: str, *,
         commit: str = "") -> tuple[str, ...]:
    judged = verdict.valid and not verdict.not_judged
    correctness = "PASS" if verdict.correct else "FAIL" if judged else "REJECTED"
    kind = f"; {verdict.latency_kind}" if verdict.latency_kind else ""
    return (experiment, tag, LOOP, model, gpu, REGIME, correctness,
            trials_tsv.number(verdict.latency_us, 4), trials_tsv.number(verdict.pct_of_roofline, 2),
            verdict.candidate_id, commit[:12], f"{why}{kind}")
