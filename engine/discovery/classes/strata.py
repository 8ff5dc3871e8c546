"""Find config classes in a table: the few columns that best explain how its rows behave.

It searches for the columns, whole or cut at a number, that split the rows into classes of like
behaviour (see `row_cost_model`), with a penalty for each further class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.discovery.classes import group_skew, row_cost_model
from engine.discovery.classes.row_cost_model import RowSignal, RowSize
from engine.discovery.project import columns
from engine.discovery.project.columns import TableColumn
from harness.benchmark.spec import table_rules
from harness.formats.quantities import counted

MOST_CLASSES = 12
MOST_COLUMNS = 3
FEW_ROWS = 6
"""If no column explains a table of at most this many rows, the columns that identify rows do."""
LEAST = 0.1
"""Least share of the differences between rows that classes must explain."""
MOST_CUTS = 2
"""Cuts of one column, which give three ranges."""
CUTS = 7
"""The maximum number of values of a column at which a cut is tried."""
CORE_SHARE = 0.8
"""Core classes are the heaviest that together have this share of the weight of all rows."""
WORK = 300_000
"""Approximate rows that one step of the search evaluates: longer tables get a narrower beam."""
BEAM = 8


@dataclass(frozen=True, kw_only=True)
class Stratum:
    """One config class: its rows, and its share of the weight of all rows."""

    name: str
    rows: tuple[int, ...]
    share: float
    core: bool


@dataclass(frozen=True, kw_only=True)
class Strata:
    """The entries of `configs`, the classes that they make, and the reason in words.

    `explained` is the share of the differences between rows that the classes explain. `keys` are
    the columns that identify rows.
    """

    configs: tuple[str, ...]
    classes: tuple[Stratum, ...]
    explained: float
    why: str
    keys: tuple[str, ...]

    @property
    def core(self) -> tuple[str, ...]:
        return tuple(stratum.name for stratum in self.classes if stratum.core)


_Partition = tuple[float, tuple[int, ...], tuple[int, ...]]
"""A partition's score, the features that make it, and the class of each row."""


@dataclass(frozen=True, kw_only=True)
class _Feature:
    entry: str
    column: TableColumn
    codes: tuple[int, ...]


def find_strata(table: Sequence[TableColumn], costs: Sequence[float], *,
                others: Sequence[Sequence[float]] = (), shares: Sequence[float] = (),
                configs: Sequence[str] = (), is_timed: bool = True) -> Strata:
    """Find the config classes of a table's rows, at least one, from their columns and costs.

    `others` are costs of the same rows by other implementations. `shares` are the rows' weights
    when core classes are chosen (by default their costs). With `configs`, such as those that a
    person confirmed, they define the classes; even then, rows of uneven groups get classes of their
    own. Unless `is_timed`, costs are per unit of work.
    """
    signals = row_cost_model.row_signals(costs, list(_sizes(table, is_timed)), others)
    keys = key_columns(table)
    features = () if configs else tuple(_features(table, len(costs)))
    chosen = _search(features, signals, len(costs))
    if row_cost_model.explained_share(signals, _codes(chosen, len(costs))) < LEAST:
        chosen = ()
    is_significant = bool(chosen)
    if not chosen and len(costs) > FEW_ROWS:
        chosen = _common(features, signals)
    columns_of_classes = tuple(configs) or tuple(dict.fromkeys(feature.entry for feature in chosen))
    if not columns_of_classes:
        columns_of_classes = keys if keys and len(costs) <= FEW_ROWS else (table_rules.ALL,)
    skew_entry = _skew_entry(table, columns_of_classes)
    if skew_entry:
        columns_of_classes = (*(entry for entry in columns_of_classes if entry != table_rules.ALL),
                              skew_entry)
    rows = [tuple(column.cells[row] for column in table) for row in range(len(costs))]
    names = [column.name for column in table]
    grouped = table_rules.group_rows(columns_of_classes, names, rows)
    while skew_entry and not configs and len(grouped) > MOST_CLASSES \
            and len(columns_of_classes) > 1:
        columns_of_classes = (*columns_of_classes[:-2], skew_entry)
        grouped = table_rules.group_rows(columns_of_classes, names, rows)
    share = _explained(signals, grouped)
    measure = ("time" if is_timed else "rate") + (" for their size" if signals[0].work else "") + (
        f", also against the table's other {'times' if is_timed else 'rates'}"
        if len(signals) > 1 else "")
    if configs:
        why = f"by {', '.join(configs)}, as the manifest says; {_share_in_words(share, measure)}"
    else:
        why = _why(chosen, len(costs), share, len(grouped), measure)
        if chosen and not is_significant:
            why += "; too few rows to be sure, but kernels are commonly specialised by it"
    if skew_entry:
        why += f"; rows of uneven groups ({skew_entry}) are classes of their own"
    return Strata(configs=columns_of_classes, classes=_strata(grouped, shares or costs),
                  explained=share, why=why, keys=keys)


def _skew_entry(table: Sequence[TableColumn], configs: Sequence[str]) -> str:
    """Return what must be added to `configs` so that no class joins even and uneven groups."""
    skew = group_skew.find_skew(table)
    if skew is None or not skew.rows or skew.column in table_rules.columns(configs):
        return ""
    return skew.entry


def _sizes(table: Sequence[TableColumn], is_timed: bool) -> Iterator[RowSize]:
    for size in table:
        if size.role == "size":
            other_cells = [column.cells for column in table
                           if column.role in ("path", "size") and column is not size]
            yield RowSize(numbers=size.numbers, other_cells=tuple(zip(*other_cells, strict=True)) or
                          ((),) * len(size.numbers), prior=float(is_timed and bool(
                              columns.name_words(size.name) & columns.WORDS["sizes"])))


def key_columns(table: Sequence[TableColumn]) -> tuple[str, ...]:
    """Return the columns that identify rows, with those that number or name rows only if needed."""
    of_config = [column for column in table if column.role in ("path", "size")]
    distinct = {tuple(row) for row in zip(*(column.cells for column in of_config), strict=True)}
    if table and len(distinct) < len(table[0].cells):
        of_config += [column for column in table if column.why == columns.UNIQUE]
    skew = group_skew.find_skew(table)
    if skew is not None and skew.rows:
        of_config += [column for column in table if column.name == skew.column
                      and column.why == columns.UNIQUE and column not in of_config]
    return tuple(column.name for column in of_config)


def _explained(signals: Sequence[RowSignal], grouped: Mapping[str, Sequence[int]]) -> float:
    codes = [0] * sum(len(rows) for rows in grouped.values())
    for number, rows in enumerate(grouped.values()):
        for row in rows:
            codes[row] = number
    return row_cost_model.explained_share(signals, codes)


def _features(table: Sequence[TableColumn], n: int) -> Iterator[_Feature]:
    """Yield the possible splits of rows; first by columns that kernels are often specialised by.

    A size is split at a number only: a different size alone does not mean another behaviour.
    """
    for column in sorted(table, key=lambda column: not column.preferred):
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
        for cut in _spread(len(values) - 1) if len(values) > 2 else ():
            yield _Feature(entry=f"{column.name} <= {values[cut]:.15g}", column=column,
                           codes=tuple(int(value > values[cut]) for value in column.numbers))


def _spread(n: int) -> Sequence[int]:
    """Return at most CUTS of the indices below n, evenly spread."""
    return range(n) if n <= CUTS else sorted({at * (n - 1) // (CUTS - 1) for at in range(CUTS)})


def _search(features: Sequence[_Feature], signals: Sequence[RowSignal],
            n: int) -> tuple[_Feature, ...]:
    """Return the features of the best partition found, none if no split is worth its classes.

    A feature by which kernels are not commonly specialised has to explain more, the more features
    there are: among many columns, some explain a few rows by chance.
    """
    start = (0,) * n
    best: _Partition = (row_cost_model.partition_score(signals, start), (), start)
    beam = [best]
    penalty = 2 * math.log(max(1, len(features)))
    width = max(1, min(BEAM, WORK // max(1, n * len(features))))
    for _ in range(MOST_COLUMNS + 1):
        tried: dict[tuple[int, ...], _Partition] = {}
        for _, used, codes in beam:
            for at, feature in enumerate(features):
                features_used = tuple(sorted({*used, at}))
                if features_used in tried or at in used or not _fit(features, features_used):
                    continue
                split = _split(codes, feature.codes)
                count = max(split) + 1
                if max(codes) + 1 < count <= min(MOST_CLASSES, max(2, n // 2)):
                    uncommon = sum(not features[i].column.preferred for i in features_used)
                    score = row_cost_model.partition_score(signals, split) + uncommon * penalty
                    tried[features_used] = (round(score, 6), features_used, split)
        beam = sorted(tried.values(), key=lambda partition: partition[:2])[:width]
        if not beam:
            break
        best = min(best, beam[0], key=lambda partition: partition[0])
    return tuple(features[number] for number in best[1])


def _common(features: Sequence[_Feature],
            signals: Sequence[RowSignal]) -> tuple[_Feature, ...]:
    """Return the whole column that explains most, among those by which kernels are commonly
    specialised; () if it explains too little.
    """
    whole = [feature for feature in features
             if feature.column.preferred and feature.entry == feature.column.name]
    best = max(
        whole, default=None,
        key=lambda feature: row_cost_model.explained_share(signals, feature.codes))
    if best is None or row_cost_model.explained_share(signals, best.codes) < LEAST:
        return ()
    return (best,)


def _fit(features: Sequence[_Feature], used: Sequence[int]) -> bool:
    """Return whether features fit together: few columns, none both whole and cut, few cuts each."""
    names = [features[number].column.name for number in used]
    whole = {features[number].entry for number in used} & set(names)
    return len(set(names)) <= MOST_COLUMNS and all(
        names.count(name) <= (1 if name in whole else MOST_CUTS) for name in names)


def _split(codes: Sequence[int], by: Sequence[int]) -> tuple[int, ...]:
    """Return the classes split further by other codes, numbered in the order of their rows."""
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
        if sum(share[chosen] for chosen in core) >= CORE_SHARE - 1e-9:
            break
        core.add(name)
    return tuple(Stratum(name=name, rows=tuple(inside), share=share[name], core=name in core)
                 for name, inside in grouped.items())


def _share_in_words(share: float, measure: str) -> str:
    return f"they account for {share:.0%} of the differences between rows in {measure}"


def _why(chosen: Sequence[_Feature], n: int, share: float, count: int, measure: str) -> str:
    """Return in words what the classes are based on; `measure` is what rows differ in."""
    if not chosen:
        if 1 < count < n:  # the classes are those of an uneven grouping
            return f"no other column tells which rows differ in {measure}"
        result = "all rows are one class" if count == 1 else "each row is a class of its own"
        return f"{result}: no column tells which rows differ in {measure}"
    names = list(dict.fromkeys(feature.column.name for feature in chosen))
    parts = []
    for name in names:
        limits = [feature.entry.removeprefix(f"{name} <= ") for feature in chosen
                  if feature.column.name == name and feature.entry != name]
        parts.append(f"{name} (up to {', up to '.join(limits)}, or more)" if limits else name)
    return f"{counted(n, 'row')} in {counted(count, 'class')} by {' and '.join(parts)}; " \
        + _share_in_words(share, measure)
