"""The best speedup as a step line over the rounds, with each round's outcome below it."""

from __future__ import annotations

from harness.formats.quantities import ratio
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import RoundPoint
from kopt_tui.widgets.pane import ContentPane
from kopt_tui.widgets.tones import Line

LABEL = 7


class ChartPane(ContentPane[tuple[RoundPoint, ...]]):
    """Best speedup against the baseline, round by round."""

    TITLE = "best so far"
    content: tuple[RoundPoint, ...] = ()

    def title_note(self) -> str:
        points = self.content
        return f"{ratio(points[-1].best)} after round {points[-1].round}" \
            if len(points) > 1 else ""

    def compose_lines(self, width: int) -> list[Line]:
        height, plot = self.body_height - 1, width - LABEL - 2
        if len(self.content) < 2 or height < 2 or plot < 8:
            return [((" the chart starts after the first round", "dim"),)]
        points = self.content[-max(2, plot // 2):]
        step = max(2, min(16, (plot - 4) // (len(points) - 1)))
        low = min(point.best for point in points)
        high = max(point.best for point in points)
        reach = (high - low) or 1.0
        levels = [round((high - p.best) / reach * (height - 1)) for p in points]
        grid = [[" "] * plot for _ in range(height)]
        for i, level in enumerate(levels):
            _step(grid, i * step, levels[i - 1] if i else level, level)
            end = i * step + (step if i + 1 < len(levels) else 1)
            for x in range(i * step + 1, end):
                grid[level][x] = "─"
        grid[levels[-1]][(len(levels) - 1) * step] = "●"
        labels = {height - 1: ratio(low)} if high > low else {}
        labels[0] = ratio(high)
        lines: list[Line] = [((f"{labels.get(y, ''):>{LABEL - 1}} ", "dim"), ("".join(row), "info"))
                             for y, row in enumerate(grid)]
        return [*lines, self._outcomes(points, step)]

    def _outcomes(self, points: tuple[RoundPoint, ...], step: int) -> Line:
        spans = [(f"{'round':>{LABEL - 1}} ", "dim")]
        for point in points:
            text = phrases.sign(point.outcome) + (str(point.round) if step >= 6 else "")
            is_last = point is points[-1]
            spans.append((text if is_last else text.ljust(step), phrases.tone(point.outcome)))
        return tuple(spans)


def _step(grid: list[list[str]], x: int, old: int, new: int) -> None:
    """Draw the rise or fall from one level to the next in a column."""
    if old == new:
        grid[new][x] = "─"
        return
    is_rise = new < old
    grid[old][x], grid[new][x] = ("╯", "╭") if is_rise else ("╮", "╰")
    for y in range(min(old, new) + 1, max(old, new)):
        grid[y][x] = "│"
