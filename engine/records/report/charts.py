"""Charts of a report: shapes that the template draws as inline SVG, in the SVG's coordinates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from harness.formats import quantities
from harness.formats.text import plain

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760.0, 56.0, 16.0, 14.0, 34.0
PROGRESS_HEIGHT, BAR, NAME = 300.0, 22.0, 190.0
MOST_CLASSES = 60
LEAST_SPAN = 0.05
SIGNS = {"keep": "●", "waiting": "?", "tie": "○", "regression": "▽", "failed": "x", "baseline": "■"}


class ProgressPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A round's speedups.

    `best` is that of the best over the baseline, after the round. `tried` is that of the round's
    kept or fastest candidate over the best before the round, None if nothing was measured.
    """

    round: int
    outcome: str
    best: float
    tried: float | None
    title: str


class SpeedupBar(msgspec.Struct, frozen=True, kw_only=True):
    """A speedup with its interval; 1 means no change."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def effect(self) -> str:
        """The word for the speedup; it selects the bar's colour."""
        logs = (None if bound is None else math.log(bound) for bound in (self.low, self.high))
        return quantities.effect(math.log(self.value), *logs) or ""

    @property
    def label(self) -> str:
        return self.effect if self.effect == "uncertain" else quantities.ratio(self.value)


class ChartElement(msgspec.Struct, frozen=True, kw_only=True):
    """An SVG element: its tag, its attributes, its text, and the title shown on hovering."""

    tag: Literal["line", "path", "rect", "text"]
    at: Mapping[str, float | str]
    words: str = ""
    title: str = ""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one figure shows, in the order of drawing."""

    label: str
    height: float
    width: float = WIDTH
    shapes: Sequence[ChartElement]


def progress(points: Sequence[ProgressPoint]) -> Chart | None:
    """Return the best after each round as steps and what each round tried as a sign; None for less
    than two rounds.
    """
    if len(points) < 2:
        return None
    before, tries = 1.0, []
    for point in points:
        kept = point.outcome == "keep"  # then it is the best now, and may rest on earlier keeps
        tries.append(None if point.tried is None else point.best if kept else point.tried * before)
        before = point.best
    low, high = _span([p.best for p in points] + [t for t in tries if t is not None])
    x = _Scale(points[0].round, points[-1].round, LEFT + 10, WIDTH - RIGHT - 10)
    y = _Scale(low, high, PROGRESS_HEIGHT - BOTTOM, TOP)
    steps = " ".join(f"{'H' if index else 'M'}{x(point.round):.2f}"
                     f"{' V' if index else ' '}{y(point.best):.2f}"
                     for index, point in enumerate(points))
    shapes = []
    for level in _levels(low, high):
        style = "one" if math.isclose(level, 1.0) else "level"
        shapes += [_line(LEFT, WIDTH - RIGHT, y(level), y(level), style),
                   _text(LEFT - 6, y(level) + 4, f"{level:.3g}x", "end")]
    shapes.append(ChartElement(tag="path", at={"d": steps, "class": "line"}))
    for point in points[::max(1, math.ceil(len(points) / 20))]:
        shapes.append(_text(x(point.round), PROGRESS_HEIGHT - BOTTOM + 18, str(point.round),
                            "middle"))
    shapes += [_text(x(point.round), y(value) + 4, SIGNS.get(point.outcome, "·"), "middle",
                     f"sign {point.outcome}", point.title)
               for point, value in zip(points, tries, strict=True) if value is not None]
    signs = ", ".join(f"{sign} {word}" for word, sign in SIGNS.items() if word != "baseline")
    return Chart(shapes=shapes, height=PROGRESS_HEIGHT, label=(
        "Best speedup against the baseline, by round. The line is the best; a sign is the "
        f"outcome of a round: {signs}"))


def speedups(values: Sequence[SpeedupBar], label: str) -> Chart | None:
    """Return bars around 1x with their intervals, the MOST_CLASSES slowest; None without values."""
    shown = sorted(values, key=lambda speedup: speedup.value)[:MOST_CLASSES]
    if not shown:
        return None
    ends = [end for point in shown for end in (point.value, point.low, point.high) if end]
    height = TOP + BAR * len(shown) + BOTTOM
    x = _Scale(*_span([*ends, 1.0]), NAME, WIDTH - RIGHT - 60)
    shapes = [_line(x(1.0), x(1.0), TOP, height - BOTTOM, "one"),
              _text(x(1.0), height - BOTTOM + 16, "1.00x", "middle")]
    for number, point in enumerate(shown):
        start, end = sorted((x(1.0), x(point.value)))
        top = TOP + BAR * number
        middle = top + BAR / 2
        bar: dict[str, float | str] = {
            "x": start, "y": top + 4, "width": max(1.0, end - start), "height": BAR - 8,
            "class": point.effect}
        shapes += [
            ChartElement(tag="rect", at=bar,
                  title=f"{point.name}: {quantities.speedup(point.value, point.low, point.high)}"),
            _text(NAME - 8, middle + 4, plain(point.name, 28), "end"),
            _text(max(end, x(point.high or point.value)) + 6, middle + 4, point.label)]
        if point.low and point.high:
            shapes.append(_line(x(point.low), x(point.high), middle, middle, "interval"))
    return Chart(label=label, height=height, shapes=shapes)


def _line(x1: float, x2: float, y1: float, y2: float, style: str) -> ChartElement:
    return ChartElement(tag="line", at={"x1": x1, "x2": x2, "y1": y1, "y2": y2, "class": style})


def _text(x: float, y: float, text: str, anchor: str = "start", style: str = "",
          title: str = "") -> ChartElement:
    return ChartElement(tag="text", words=text, title=title,
                        at={"x": x, "y": y, "text-anchor": anchor, "class": style})


def _levels(low: float, high: float) -> Iterator[float]:
    """Yield the speedups at which an axis has lines: at most nine round numbers."""
    step = 10 ** math.floor(math.log10(high - low))
    step = next(s for s in (step / 5, step / 2, step, step * 2) if (high - low) / s <= 8)
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield number * step


class _Scale(msgspec.Struct, frozen=True):
    """A linear map from values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low if self.high > self.low else 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis: all values and some margin, never less than LEAST_SPAN."""
    low, high = min(values), max(values)
    margin = max(LEAST_SPAN, high - low) * 0.06
    return low - margin, max(high, low + LEAST_SPAN) + margin
