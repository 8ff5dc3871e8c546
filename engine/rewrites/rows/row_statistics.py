"""The lines that compute statistics of rows: in registers, or in a loop over parts of a row."""

from __future__ import annotations

from dataclasses import dataclass

from engine.rewrites.rows.row_index import RowPlace
from engine.rewrites.rows.row_ops import Statistic

INFINITY = 'float("inf")'
MOST = "3.4028234663852886e38"
"""The highest peak, as -MOST is the lowest: the distance between two infinities would be NaN."""


@dataclass(frozen=True)
class Statistics:
    """The statistics of one kind of one value; their variables start with `name`."""

    kind: Statistic
    name: str

    @property
    def variables(self) -> dict[str, str]:
        """Return the variable of each statistic by its name in the code of a RowOp."""
        parts = {"peak": ("peak", "total", "finite"),
                 "moments": ("mean", "variance")}.get(self.kind, (self.kind,))
        return {part: f"{self.name}_{part}" for part in parts}


def lines_of(statistic: Statistics, value: str, is_long: bool, start: str,
             place: RowPlace) -> tuple[list[str], list[str], list[str]]:
    """Return the lines before, within and after a loop; all are in the last if a row is whole.

    `value` and `start` are the variables of the values in a tile and of the loop.
    """
    write = {"sum": _sum, "squares": _sum, "max": _extreme, "min": _extreme, "peak": _peak,
             "moments": _moments}[statistic.kind]
    return write(statistic, value, is_long, start, place)


def _sum(statistic: Statistics, value: str, is_long: bool, start: str,
         place: RowPlace) -> tuple[list[str], list[str], list[str]]:
    name = statistic.variables[statistic.kind]
    term = f"{value} * {value}" if statistic.kind == "squares" else value
    masked = f"tl.where({place.inside}, {term}, 0.0)"
    if not is_long:
        return [], [], [f"{name} = tl.sum({masked}, 1, keep_dims=True)"]
    return [f"{name}_parts = tl.zeros([LANES, BLOCK], tl.float32)"], [
        f"{name}_parts += {masked}"], [f"{name} = tl.sum({name}_parts, 1, keep_dims=True)"]


def _extreme(statistic: Statistics, value: str, is_long: bool, start: str,
             place: RowPlace) -> tuple[list[str], list[str], list[str]]:
    kind = statistic.kind
    name = statistic.variables[kind]
    least = f"-{INFINITY}" if kind == "max" else INFINITY
    masked = f"tl.where({place.inside}, {value}, {least})"
    parts = f"{name}_parts"
    last = [f"{name} = tl.{kind}({parts}, 1, keep_dims=True)",
            f"{name} = tl.where(tl.max(({parts} != {parts}).to(tl.int32), 1, keep_dims=True) > 0, "
            f'float("nan"), {name})']
    if not is_long:
        return [], [], [f"{parts} = {masked}", *last]
    return [f"{parts} = tl.full([LANES, BLOCK], {least}, tl.float32)"], [
        f"{parts} = tl.{kind}imum({parts}, {masked}, propagate_nan=tl.PropagateNan.ALL)"], last


def _peak(statistic: Statistics, value: str, is_long: bool, start: str,
          place: RowPlace) -> tuple[list[str], list[str], list[str]]:
    peak, total, finite = statistic.variables.values()
    last = f'{finite} = tl.where({total} < {INFINITY}, {total}, float("nan"))'
    masked = f"tl.where({place.inside}, {value}, -{INFINITY})"
    if not is_long:
        return [], [], [
            f"{peak}_masked = {masked}",
            f"{peak} = tl.clamp(tl.max({peak}_masked, 1, keep_dims=True), -{MOST}, {MOST})",
            f"{total} = tl.sum(tl.exp({peak}_masked - {peak}), 1, keep_dims=True)", last]
    low, new = f"{peak}_parts", f"{peak}_new"
    return [f"{low} = tl.full([LANES, BLOCK], -{MOST}, tl.float32)",
            f"{total}_parts = tl.zeros([LANES, BLOCK], tl.float32)"], [
        f"{peak}_masked = {masked}",
        f"{new} = tl.clamp(tl.maximum({low}, {peak}_masked), -{MOST}, {MOST})",
        f"{total}_parts = {total}_parts * tl.exp({low} - {new}) + tl.exp({peak}_masked - {new})",
        f"{low} = {new}"], [
        f"{peak} = tl.max({low}, 1, keep_dims=True)",
        f"{total} = tl.sum({total}_parts * tl.exp({low} - {peak}), 1, keep_dims=True)", last]


def _moments(statistic: Statistics, value: str, is_long: bool, start: str,
             place: RowPlace) -> tuple[list[str], list[str], list[str]]:
    mean, variance = statistic.variables.values()
    if not is_long:
        return [], [], [
            f"{mean} = tl.sum(tl.where({place.inside}, {value}, 0.0), 1, keep_dims=True) / columns",
            f"{mean}_apart = tl.where({place.inside}, {value} - {mean}, 0.0)",
            f"{variance} = tl.sum({mean}_apart * {mean}_apart, 1, keep_dims=True) / columns"]
    # each column of the tile has its own moments, after Welford; at the end they are joined
    return [f"{mean}_parts = tl.zeros([LANES, BLOCK], tl.float32)",
            f"{variance}_parts = tl.zeros([LANES, BLOCK], tl.float32)"], [
        f"{mean}_apart = tl.where({place.inside}, {value} - {mean}_parts, 0.0)",
        f"{mean}_parts += {mean}_apart * (1.0 / ({start} // BLOCK + 1))",
        f"{variance}_parts += {mean}_apart * tl.where({place.inside}, {value} - {mean}_parts, 0.0)",
    ], [
        f"{mean}_counts = (columns - tl.arange(0, BLOCK)[None, :] + BLOCK - 1) // BLOCK",
        f"{mean} = tl.sum({mean}_parts * {mean}_counts, 1, keep_dims=True) / columns",
        f"{mean}_apart = {mean}_parts - {mean}",
        f"{variance}_parts += {mean}_counts * {mean}_apart * {mean}_apart",
        f"{variance} = tl.sum({variance}_parts, 1, keep_dims=True) / columns"]
