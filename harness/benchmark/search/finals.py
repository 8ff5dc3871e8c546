"""Who may be best in some config class, and how they compare with the common best there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from harness.benchmark.runs import run_pairs
from harness.benchmark.runs.alternating_runs import AlternatingRuns, BenchmarkRunner
from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.runs.run_pairs import RunPair
from harness.benchmark.spec.command_target import BenchmarkMode, CommandTarget
from harness.benchmark.spec.metric_units import RowCost
from harness.search.space.space import Config
from harness.search.trials.trials import Contender, Showing, Trial
from harness.timing import stats
from harness.timing.outcome import SURE
from harness.timing.plan import Plan

MOST_CONTENDERS = 4
"""Contenders besides the default."""


def choose(trials: Sequence[Trial], best: Trial, classes: Sequence[str]) -> list[Trial]:
    """Return the default, unless it is best, and who beats the best where: who gains most first.

    Without any such there is nobody to compare, the default neither.
    """
    right = [trial for trial in trials if trial.correct and trial.by_class.keys() >= set(classes)]
    gains: dict[int, float] = {}
    for name in classes:
        leader = max(right, key=lambda trial: trial.by_class[name])
        gain = leader.by_class[name] - best.by_class[name]
        if gain > 0 and leader.number != best.number:
            gains[leader.number] = gains.get(leader.number, 0.0) + gain
    found = {trial.number: trial for trial in right}
    default = right[0].number if right else best.number
    leaders = [found[number] for number in sorted(gains, key=lambda one: -gains[one])
               if number != default][:MOST_CONTENDERS]
    others = [found[default]] if default != best.number else []
    return [*others, *leaders] if leaders or default in gains else []


def screened(chosen: Sequence[Trial], best: Trial, classes: Sequence[str],
             ) -> tuple[Contender, ...]:
    """Return contenders as the search has seen them, once each."""
    return tuple(Contender(config=trial.config, showings=tuple(
        Showing(config_class=name, gain=trial.by_class[name] - best.by_class[name])
        for name in classes)) for trial in chosen)


def repeat(bench: BenchmarkRunner, mode: BenchmarkMode, times: int, note: Callable[[str], None],
           ) -> dict[str, list[TableReading]]:
    """Run all sides of a bench in turn, so many times; who fails is left out, and told."""
    runs: dict[str, list[TableReading]] = {name: [] for name in bench.sides}
    duel = AlternatingRuns(bench, mode, Plan())
    for turn in range(times):
        bench.progress("timing", f"contenders, round {turn + 1} of {times}", turn / times)
        with bench.lock() as held:
            for name in list(runs) if turn % 2 else list(runs)[::-1]:
                try:
                    read = bench.undisturbed(partial(duel.reading, name, held))
                    if read.failed:
                        raise BenchmarkFault("failed-check", read.failed[0].what)
                    runs[name].append(read)
                except BenchmarkFault as fault:
                    note(f"{name} failed when it was run again: {fault}")
                    del runs[name]
    return runs


def compared(target: CommandTarget, measure: RowCost, runs: Mapping[str, Sequence[TableReading]],
             configs: Mapping[str, Config], classes: Sequence[str]) -> tuple[Contender, ...]:
    """Return contenders by runs in turn with `best`; who does not fit its table is left out."""
    found = []
    for name, config in configs.items():
        if name not in runs or "best" not in runs:
            continue
        pairs = [RunPair(incumbent=best, candidate=own)
                 for best, own in zip(runs["best"], runs[name], strict=True)]
        try:
            seen = {one.name: one for one in run_pairs.build(target, measure, pairs).classes}
        except BenchmarkFault:
            continue
        found.append(Contender(config=config, showings=tuple(
            _showing(one, seen[one].log_ratios) for one in classes if one in seen)))
    return tuple(found)


def _showing(config_class: str, ratios: Sequence[float]) -> Showing:
    value = stats.estimate(ratios, SURE)
    return Showing(config_class=config_class, gain=value.mean, stderr=value.stderr,
                   pairs=value.pairs)
