"""Choose the configurations that may be best in some config class, and compare them there."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial

from harness.benchmark.runs.result_table import BenchmarkFault, TableReading
from harness.benchmark.runs.run_pairs import RunPair
from harness.benchmark.runs.workdir import WorkingCopy
from harness.benchmark.search.configured_runs import ConfiguredRuns
from harness.benchmark.spec.command_target import BenchmarkMode
from harness.search.trials.trials import ClassGain, Contender, Trial
from harness.timing import stats
from harness.timing.outcome import SURE
from harness.verdict import Config

MOST_CONTENDERS = 4
"""Contenders besides the default."""
BEST = "best"
"""The name of the copy with the best configuration of the whole table."""


def choose_contenders(trials: Sequence[Trial], best: Trial, classes: Sequence[str]) -> list[Trial]:
    """Return the default unless it is the best, then class leaders by gain; [] without leaders."""
    complete = [trial for trial in trials
                if trial.correct and trial.by_class.keys() >= set(classes)]
    gains: dict[int, float] = {}
    for name in classes:
        leader = max(complete, key=lambda trial: trial.by_class[name])
        gain = leader.by_class[name] - best.by_class[name]
        if gain > 0 and leader.number != best.number:
            gains[leader.number] = gains.get(leader.number, 0.0) + gain
    by_number = {trial.number: trial for trial in complete}
    default = complete[0].number if complete else best.number
    leaders = [by_number[number] for number in sorted(gains, key=lambda number: -gains[number])
               if number != default][:MOST_CONTENDERS]
    others = [by_number[default]] if default != best.number else []
    return [*others, *leaders] if leaders or default in gains else []


def screened_contenders(chosen: Sequence[Trial], best: Trial,
                        classes: Sequence[str]) -> tuple[Contender, ...]:
    """Return contenders with the one gain per class that the search measured."""
    return tuple(Contender(config=trial.config, gains=tuple(
        ClassGain(config_class=name, gain=trial.by_class[name] - best.by_class[name])
        for name in classes)) for trial in chosen)


def measured_contenders(runs: ConfiguredRuns, default: Config, best: Trial, chosen: Sequence[Trial],
                        repeats: int) -> tuple[Contender, ...]:
    """Run contenders in alternation with the best; those that gain run the full command too."""
    default_copy = runs.session.copies["incumbent"]

    def copy_of(trial: Trial, name: str) -> WorkingCopy:
        return default_copy if trial.config == default else \
            runs.configured_copy(name, trial.config)

    copies = {BEST: copy_of(best, BEST)}
    configs: dict[str, Config] = {}
    for number, trial in enumerate(chosen, 1):
        name = f"contender-{number}"
        with contextlib.suppress(BenchmarkFault):
            copies[name] = copy_of(trial, name)
            configs[name] = trial.config
    runs.session.copies |= copies
    readings = repeat_runs(runs, list(copies), runs.mode, repeats)
    contenders = compare_contenders(runs, readings, configs)
    winners = [contender.config for contender in contenders
               if any(gain.sure > 0 for gain in contender.gains)]
    full = runs.target.full
    if runs.mode == full or not winners:
        return contenders
    names = [name for name, copy in copies.items()
             if name == BEST or copy is default_copy or configs[name] in winners]
    readings = repeat_runs(runs, names, full, repeats)
    if BEST not in readings:
        return ()
    runs.learn_classes(runs.match_pairs(*(
        RunPair(incumbent=reading, candidate=reading) for reading in readings[BEST])))
    return compare_contenders(runs, readings, configs)


def repeat_runs(runs: ConfiguredRuns, names: Sequence[str], mode: BenchmarkMode,
                repeats: int) -> dict[str, list[TableReading]]:
    """Run all copies alternating, `repeats` times; leave out one that fails, with a note."""
    session = runs.session
    readings: dict[str, list[TableReading]] = {name: [] for name in names}
    for repeat in range(repeats):
        session.progress("timing", f"contenders, round {repeat + 1} of {repeats}", repeat / repeats)
        with session.lock() as held:
            for name in list(readings) if repeat % 2 else list(readings)[::-1]:
                try:
                    reading = session.clean_runs(partial(session.run, name, mode, held))
                    reading.expect_passed()
                    readings[name].append(reading)
                except BenchmarkFault as fault:
                    session.notes.append(f"{name} failed when it ran again: {fault}")
                    del readings[name]
    return readings


def compare_contenders(runs: ConfiguredRuns, readings: Mapping[str, Sequence[TableReading]],
                       configs: Mapping[str, Config]) -> tuple[Contender, ...]:
    """Compare contenders with the best by alternating runs; leave out those with other rows."""
    contenders = []
    for name, config in configs.items():
        if name not in readings or BEST not in readings:
            continue
        pairs = [RunPair(incumbent=best, candidate=contender)
                 for best, contender in zip(readings[BEST], readings[name], strict=True)]
        try:
            ratios = {entry.name: entry.log_ratios for entry in runs.match_pairs(*pairs).classes}
        except BenchmarkFault:
            continue
        contenders.append(Contender(config=config, gains=tuple(
            _class_gain(entry.name, ratios[entry.name])
            for entry in runs.classes if entry.name in ratios)))
    return tuple(contenders)


def _class_gain(config_class: str, ratios: Sequence[float]) -> ClassGain:
    value = stats.estimate(ratios, SURE)
    return ClassGain(config_class=config_class, gain=value.mean, stderr=value.stderr,
                     pairs=value.pairs)
