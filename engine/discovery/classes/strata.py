"""Config classes found in real rows: the few columns that best explain how rows behave.

A pure function of a table: which columns, whole or cut at a number, split the rows so that those
of a class behave alike (see `behaviour`), at the price that each further class costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.discovery.classes import row_cost_model
from engine.discovery.classes.row_cost_model import RowSignal, RowSize
from engine.discovery.project import columns
from engine.discovery.project.columns import TableColumn
from harness.benchmark.spec import row_classes as classes

MOST_CLASSES = 12
MOST_COLUMNS = 3
FEW_ROWS = 6
"""So many rows at most are classes of their own where no column explains them."""
LEAST = 0.1
"""Share of the rows' differences that classes must explain to be any."""
MOST_CUTS = 2
"""Of one column: three ranges."""
CUTS = 7
"""Places at most where a column is tried to be cut."""
CORE_SHARE = 0.8
"""Of the time: the classes that make it up are core, the dearest first."""
WORK = 300_000
"""Rows that the search looks at in one step, about: it narrows down for long tables."""
BEAM = 8


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """One config class: its rows, and its share of the time that all rows take."""

    name: str
    rows: tuple[int, ...]
    share: float
    core: bool


@dataclass(frozen=True, kw_only=True)
class Strata:
    """A proposal: `configs` as the manifest has it, the classes that it makes, and why.

    `explained` is the share of the rows' differences that the classes explain. `keys` are the
    columns that tell rows apart, `said` what each other column is left out for.
    """

    configs: tuple[str, ...]
    classes: tuple[Stratum, ...]
    explained: float
    why: str
    keys: tuple[str, ...]
    said: Mapping[str, str]

    @property
    def core(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.classes if one.core)


_Try = tuple[float, tuple[int, ...], tuple[int, ...]]
"""How bad a partition is, the features that make it, the class of each row."""


@dataclass(frozen=True, kw_only=True)
class _Feature:
    entry: str
    column: TableColumn
    codes: tuple[int, ...]


def find(looked: Sequence[TableColumn], costs: Sequence[float], *,
         others: Sequence[Sequence[float]] = (), shares: Sequence[float] = (),
         configs: Sequence[str] = (), timed: bool = True) -> Strata:
    """Find the classes of rows from their columns and costs; there is one row at least.

    `others` are costs of the same rows elsewhere: by another implementation, of another candidate.
    `shares` say how much each row counts for its class to be core (by default its cost). Where
    `configs` are given, such as those that a person confirmed, the classes are theirs. Costs that
    are not `timed` are of a unit of work.
    """
    signals = row_cost_model.signals(costs, list(_sizes(looked, timed)), others)
    keys = keys_of(looked)
    features = () if configs else tuple(_features(looked, len(costs)))
    chosen = _search(features, signals, len(costs))
    if row_cost_model.explained(signals, _codes(chosen, len(costs))) < LEAST:
        chosen = ()
    sure = bool(chosen)
    if not chosen and len(costs) > FEW_ROWS:
        chosen = _common(features, signals, len(costs))
    found = tuple(configs) or tuple(dict.fromkeys(feature.entry for feature in chosen))
    if not found:
        found = keys if keys and len(costs) <= FEW_ROWS else (classes.ALL,)
    table = [tuple(column.cells[row] for column in looked) for row in range(len(costs))]
    grouped = classes.group_rows(found, [column.name for column in looked], table)
    share = _explained(signals, grouped)
    if configs:
        why = (f"as the manifest has it: {', '.join(configs)}; explains {share:.0%} of "
               f"{_seen(signals)}")
    else:
        why = _why(chosen, found, signals, len(costs), share, len(grouped))
        if chosen and not sure:
            why += "; the rows are too few to be sure, kernels are commonly specialised by it"
    return Strata(configs=found, classes=_strata(grouped, shares or costs), explained=share,
                  why=why, keys=keys,
                  said={column.name: column.why for column in looked if column.why})


def _sizes(looked: Sequence[TableColumn], timed: bool) -> Iterator[RowSize]:
    for size in looked:
        if size.role == "size":
            beside = [column.cells for column in looked
                      if column.role in ("path", "size") and column is not size]
            yield RowSize(numbers=size.numbers, beside=tuple(zip(*beside, strict=True)) or
                       ((),) * len(size.numbers),
                       prior=float(timed and bool(columns.words(size.name) & columns.SIZES)))


def keys_of(looked: Sequence[TableColumn]) -> tuple[str, ...]:
    """Return the columns that tell rows apart; those that number or name rows only where needed."""
    of_config = [column for column in looked if column.role in ("path", "size")]
    seen = {tuple(row) for row in zip(*(column.cells for column in of_config), strict=True)}
    if looked and len(seen) < len(looked[0].cells):
        of_config += [column for column in looked if column.why == columns.UNIQUE]
    return tuple(column.name for column in of_config)


def _explained(signals: Sequence[RowSignal], grouped: Mapping[str, Sequence[int]]) -> float:
    codes = [0] * sum(len(inside) for inside in grouped.values())
    for number, inside in enumerate(grouped.values()):
        for row in inside:
            codes[row] = number
    return row_cost_model.explained(signals, codes)


def _features(looked: Sequence[TableColumn], n: int) -> Iterator[_Feature]:
    """Yield what may split the rows, what kernels are commonly specialised by first.

    A size is only cut: that it is larger is no other behaviour.
    """
    for column in sorted(looked, key=lambda column: not column.preferred):
        levels = column.levels
        if column.role not in ("path", "size"):
            continue
        if column.role == "path" and 1 < len(levels) <= columns.LEVELS and 2 * len(levels) <= n:
            at = {cell: number for number, cell in enumerate(levels)}
            yield _Feature(entry=column.name, column=column,
                           codes=tuple(at[cell] for cell in column.cells))
        if not column.numbers:
            continue
        values = sorted(set(column.numbers))
        for place in _spread(len(values) - 1) if len(values) > 2 else ():
            yield _Feature(entry=f"{column.name} <= {values[place]:.15g}", column=column,
                           codes=tuple(int(value > values[place]) for value in column.numbers))


def _spread(n: int) -> Sequence[int]:
    """Return so many places out of n, evenly."""
    return range(n) if n <= CUTS else sorted({at * (n - 1) // (CUTS - 1) for at in range(CUTS)})


def _search(features: Sequence[_Feature], signals: Sequence[RowSignal],
            n: int) -> tuple[_Feature, ...]:
    """Return the features of the best partition found, none where no split is worth its classes.

    One that was picked among many has to explain more than one that kernels are commonly
    specialised by: among many columns some explain a few rows by chance.
    """
    start = (0,) * n
    best: _Try = (row_cost_model.score(signals, start), (), start)
    beam = [best]
    picked = 2 * math.log(max(1, len(features)))
    width = max(1, min(BEAM, WORK // max(1, n * len(features))))
    for _ in range(MOST_COLUMNS + 1):
        tried: dict[tuple[int, ...], _Try] = {}
        for _, taken, codes in beam:
            for at, feature in enumerate(features):
                wanted = tuple(sorted({*taken, at}))
                if wanted in tried or at in taken or not _fits(features, wanted):
                    continue
                split = _split(codes, feature.codes)
                made = max(split) + 1
                if made <= min(MOST_CLASSES, max(2, n // 2)) and made > max(codes) + 1:
                    behind = sum(not features[one].column.preferred for one in wanted)
                    bad = row_cost_model.score(signals, split) + behind * picked
                    tried[wanted] = (round(bad, 6), wanted, split)
        beam = sorted(tried.values(), key=lambda one: one[:2])[:width]
        if not beam:
            break
        best = min(best, beam[0], key=lambda one: one[0])
    return tuple(features[number] for number in best[1])


def _common(features: Sequence[_Feature], signals: Sequence[RowSignal],
            n: int) -> tuple[_Feature, ...]:
    """Return what explains most of the columns that kernels are commonly specialised by, if any
    does: what to tell rows apart by where they are too few to say.
    """
    whole = [feature for feature in features
             if feature.column.preferred and feature.entry == feature.column.name]
    best = max(whole, key=lambda one: row_cost_model.explained(signals, one.codes), default=None)
    if best is None or row_cost_model.explained(signals, best.codes) < LEAST:
        return ()
    return (best,)


def _fits(features: Sequence[_Feature], wanted: Sequence[int]) -> bool:
    """Tell whether features go together: few columns, none both whole and cut, or cut to pieces."""
    names = [features[number].column.name for number in wanted]
    whole = {features[number].entry for number in wanted} & set(names)
    return len(set(names)) <= MOST_COLUMNS and all(
        names.count(name) <= (1 if name in whole else MOST_CUTS) for name in names)


def _split(codes: Sequence[int], by: Sequence[int]) -> tuple[int, ...]:
    """Return the classes split further, numbered as rows first show them."""
    numbers: dict[tuple[int, int], int] = {}
    return tuple(numbers.setdefault(pair, len(numbers)) for pair in zip(codes, by, strict=True))


def _codes(chosen: Sequence[_Feature], n: int) -> tuple[int, ...]:
    codes = (0,) * n
    for feature in chosen:
        codes = _split(codes, feature.codes)
    return codes


def _strata(grouped: Mapping[str, Sequence[int]], shares: Sequence[float]) -> tuple[Stratum, ...]:
    whole = sum(shares) or 1.0
    share = {name: sum(shares[row] for row in inside) / whole for name, inside in grouped.items()}
    core: set[str] = set()
    for name in sorted(share, key=lambda name: -share[name]):
        if sum(share[one] for one in core) >= CORE_SHARE - 1e-9:
            break
        core.add(name)
    return tuple(Stratum(name=name, rows=tuple(inside), share=share[name], core=name in core)
                 for name, inside in grouped.items())


def _seen(signals: Sequence[RowSignal]) -> str:
    """Say what behaviour is here."""
    told = "what rows cost beyond their size" if signals[0].work else "what rows cost"
    if len(signals) == 1:
        return told
    return f"{told} and how that compares with the table's other times and rates"


def _why(chosen: Sequence[_Feature], configs: Sequence[str], signals: Sequence[RowSignal], n: int,
         share: float, made: int) -> str:
    """Say what the classes rest on."""
    seen = _seen(signals)
    if not chosen:
        told = "all rows are one class" if made == 1 else "each row is a class of its own"
        return f"no column explains {seen} in {n} rows: {told}"
    names = list(dict.fromkeys(feature.column.name for feature in chosen))
    parts = []
    for name in names:
        mine = [feature for feature in chosen if feature.column.name == name]
        alone = _codes(mine, n)
        cut = " or ".join(one.entry.removeprefix(f"{name} <= ") for one in mine
                          if one.entry != name)
        parts.append(f"{name}{f' cut at {cut}' if cut else ''} "
                     f"({row_cost_model.explained(signals, alone):.0%} alone)")
    return (f"{', '.join(parts)} explain{'s' if len(parts) == 1 else ''} {share:.0%} of {seen}, in "
            f"{made} classes of {n} rows")
