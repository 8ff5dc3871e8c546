"""Charts as inline SVG: a campaign's progress, its config classes, what of its gain is believed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from engine.records.report.markup import Markup, tag

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760.0, 56.0, 16.0, 14.0, 34.0
BAR, NAME = 22.0, 190.0
MOST_CLASSES = 60
LEAST_SPAN = 0.05
SIGNS = {"keep": "●", "tie": "○", "regression": "▽", "failed": "x", "baseline": "■"}


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A round: how much faster than the baseline the best was after it, and its own best try.

    `tried` is that candidate's speedup over the best before it, None if nothing was measured.
    """

    round: int
    outcome: str
    best: float
    tried: float | None
    title: str


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A speedup with its interval, 1 being where it began."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


def progress(points: Sequence[Point]) -> Markup:
    """Return the best after each round as steps, and each round's own try as a sign."""
    if len(points) < 2:
        return Markup("")
    before, tries = 1.0, []
    for point in points:
        kept = point.outcome == "keep"  # it is the best now, on whatever the round kept before it
        tries.append(None if point.tried is None else point.best if kept else point.tried * before)
        before = point.best
    low, high = _span([p.best for p in points] + [t for t in tries if t is not None])
    height = 300.0
    x = _scale(points[0].round, points[-1].round, LEFT + 10, WIDTH - RIGHT - 10)
    y = _scale(low, high, height - BOTTOM, TOP)
    steps = " ".join(f"{'H' if index else 'M'}{_n(x(p.round))}"
                     f"{' V' if index else ' '}{_n(y(p.best))}" for index, p in enumerate(points))
    return _svg(height, "Best speedup against the baseline, by round", [
        *_levels(low, high, y), *_rounds(points, x, height),
        tag("path", d=steps, class_="line"),
        *(_sign(x(p.round), y(t), p) for p, t in zip(points, tries, strict=True)
          if t is not None)])


def classes(bars: Sequence[Bar], label: str) -> Markup:
    """Return bars around 1x with their intervals, the slowest first."""
    shown = sorted(bars, key=lambda bar: bar.value)[:MOST_CLASSES]
    if not shown:
        return Markup("")
    ends = [end for bar in shown for end in (bar.value, bar.low, bar.high) if end]
    low, high = _span([*ends, 1.0])
    height = TOP + BAR * len(shown) + BOTTOM
    x = _scale(low, high, NAME, WIDTH - RIGHT - 60)
    return _svg(height, label, [
        tag("line", x1=x(1.0), x2=x(1.0), y1=TOP, y2=height - BOTTOM, class_="one"),
        tag("text", "1.00x", x=x(1.0), y=height - BOTTOM + 16, text_anchor="middle"),
        *(_bar(bar, TOP + BAR * index, x) for index, bar in enumerate(shown))])


def _bar(bar: Bar, top: float, x: _Scale) -> Markup:
    start, end = sorted((x(1.0), x(bar.value)))
    middle = top + BAR / 2
    sure = f" [{bar.low:.2f}, {bar.high:.2f}]" if bar.low and bar.high else ""
    parts = [tag("title", f"{bar.name}: {bar.value:.3f}x{sure}"),
             tag("text", _short(bar.name), x=NAME - 8, y=middle + 4, text_anchor="end"),
             tag("rect", x=start, y=top + 4, width=max(1.0, end - start), height=BAR - 8,
                 class_="faster" if bar.value >= 1 else "slower")]
    if bar.low and bar.high:
        parts.append(tag("line", x1=x(bar.low), x2=x(bar.high), y1=middle, y2=middle,
                         class_="sure"))
    parts.append(tag("text", f"{bar.value:.2f}x", y=middle + 4,
                     x=max(end, x(bar.high or bar.value)) + 6))
    return tag("g", *parts)


def _sign(x: float, y: float, point: Point) -> Markup:
    return tag("text", tag("title", point.title), SIGNS.get(point.outcome, "·"), x=x, y=y + 4,
               text_anchor="middle", class_=f"sign {point.outcome}")


def _levels(low: float, high: float, y: _Scale) -> Iterator[Markup]:
    """Yield lines at round speedups."""
    step = 10 ** math.floor(math.log10(high - low))
    step = next(s for s in (step / 5, step / 2, step, step * 2) if (high - low) / s <= 8)
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        at = y(number * step)
        yield tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at,
                  class_="one" if math.isclose(number * step, 1.0) else "level")
        yield tag("text", f"{number * step:.3g}x", x=LEFT - 6, y=at + 4, text_anchor="end")


def _rounds(points: Sequence[Point], x: _Scale, height: float) -> Iterator[Markup]:
    every = max(1, math.ceil(len(points) / 20))
    for point in points[::every]:
        yield tag("text", str(point.round), x=x(point.round), y=height - BOTTOM + 18,
                  text_anchor="middle")


class _Scale(msgspec.Struct, frozen=True):
    """A straight map from values to places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def _scale(low: float, high: float, start: float, end: float) -> _Scale:
    return _Scale(low, high if high > low else low + 1, start, end)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return what an axis shows: all values and some room, never a mere sliver of noise."""
    low, high = min(values), max(values)
    room = max(LEAST_SPAN, high - low) * 0.06
    return low - room, max(high, low + LEAST_SPAN) + room


def _svg(height: float, label: str, parts: Sequence[Markup]) -> Markup:
    drawn = tag("svg", tag("title", label), *parts, viewBox=f"0 0 {_n(WIDTH)} {_n(height)}",
                role="img")
    return tag("figure", drawn, tag("figcaption", label))


def _short(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:27]}…"


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
