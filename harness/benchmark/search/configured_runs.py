"""Runs of a benchmark with a source's knobs set, and the config classes that its tables show."""

from __future__ import annotations

from harness.benchmark.runs import run_pairs
from harness.benchmark.runs.command_session import BenchmarkSession
from harness.benchmark.runs.run_pairs import RunPair, Series
from harness.benchmark.runs.workdir import WorkingCopy
from harness.search.space.tunable_source import TunableSource
from harness.search.trials.trials import ConfigRows
from harness.verdict import Config

MOST_CLASSES = 64
"""Most config classes that are scored; the others count in the whole table only."""


class ConfiguredRuns:
    """Copies of a tree with configurations set, for the runs of one session.

    `mode` is the command whose classes are known: the quick one, if there is one, at first.
    """

    def __init__(self, session: BenchmarkSession, source: TunableSource, tree: str) -> None:
        self.session, self.target, self.source, self.tree = session, session.target, source, tree
        self.mode = self.target.quick or self.target.full
        self.columns: tuple[str, ...] = ()
        self.classes: tuple[ConfigRows, ...] = ()
        """The most expensive classes first."""

    def configured_copy(self, name: str, config: Config) -> WorkingCopy:
        """Return a built copy of the tree with a configuration set. Raises BenchmarkFault."""
        copy = self.session.copy(name, self.tree)
        (copy.tree / self.target.source).write_bytes(self.source.apply(config).encode())
        self.session.build(copy)
        return copy

    def match_pairs(self, *pairs: RunPair) -> Series:
        """Return the series of some pairs. Raises BenchmarkFault and BrokenIncumbent."""
        return run_pairs.match_pairs(self.target, self.session.row_cost, pairs)

    def learn_classes(self, series: Series) -> None:
        """Store the config classes of a command's table, the most expensive first."""
        keys = run_pairs.rows_by_class(self.target, series.config, series.keys)
        is_sum = self.target.scoring == "total"  # then a class's cost is that of all its rows
        by_cost = sorted(series.classes,
                         key=lambda entry: -entry.incumbent_us * (1.0 if is_sum else entry.weight))
        self.columns = series.config.columns
        self.classes = tuple(ConfigRows(name=entry.name, cells=tuple(keys[entry.name]))
                             for entry in by_cost[:MOST_CLASSES])
        note = "config classes that take little time are not searched separately"
        if len(by_cost) > MOST_CLASSES and not any(note in n for n in self.session.notes):
            self.session.notes.append(f"{len(by_cost) - MOST_CLASSES} {note}")
