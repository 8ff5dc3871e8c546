"""Config classes of one verdict: what each shape gained, how sure that is, how far it can go."""

from __future__ import annotations

import math

from harness.verdict import Row
from kopt_tui import words
from kopt_tui.snapshot import ClassTable, Speedup
from kopt_tui.widgets.pane import Pane, fit
from kopt_tui.widgets.tones import Line

HEADINGS = (("class", 12, False), ("outcome", 10, False), ("speedup", 18, False),
            ("latency", 9, True), ("before", 9, True), ("roofline", 8, True), ("pairs", 5, True))


def class_lines(rows: tuple[Row, ...], width: int) -> list[Line]:
    """Return a table of config classes: a line of headings and one line per class."""
    if not rows:
        return [((" no class was measured", "dim"),)]
    heading = " ".join(fit(name, size, right=right) for name, size, right in HEADINGS)
    return [((f" {heading}", "dim"),), *(_row(row, width) for row in rows)]


def _row(row: Row, width: int) -> Line:
    outcome = row.outcome if row.correct else "broken"
    said = "not timed" if outcome == "unmeasured" else words.signed(outcome)
    roof = "" if row.pct_of_roofline is None else f"{row.pct_of_roofline:.0f}%"
    name = f"{row.config_class}*" if row.core else row.config_class
    parts = [(f" {fit(name, 12)} ", "plain"), (f"{fit(said, 10)} ", words.tone(outcome)),
             (f"{fit(words.speedup(class_speedup(row)), 18)} ", "plain"),
             (fit(words.micros(row.latency_us), 9, right=True) + " ", "plain"),
             (fit(words.micros(row.incumbent_us), 9, right=True) + " ", "dim"),
             (fit(roof, 8, right=True) + " ", "plain"),
             (fit(str(row.pairs or ""), 5, right=True), "dim")]
    if row.note:
        parts.append((fit(f" {row.note}", max(0, width - 79)), "dim"))
    return tuple(parts)


def class_speedup(row: Row) -> Speedup | None:
    """Return a class's log-ratio and bounds as a speedup."""
    if row.log_ratio is None:
        return None
    return Speedup(math.exp(row.log_ratio), None if row.low is None else math.exp(row.low),
                   None if row.high is None else math.exp(row.high))


class ClassesPane(Pane):
    """The config classes of the newest kept verdict, or of the best one."""

    TITLE = "classes"
    table: ClassTable | None = None

    def set_table(self, table: ClassTable | None) -> None:
        """Show this verdict's classes."""
        if table != self.table or not self._drawn:
            self.table = table
            self.note = f"of {table.title}" if table else ""
            self.redraw()

    def compose_lines(self, width: int) -> list[Line]:
        if self.table is None:
            return [((" nothing has been measured yet", "dim"),)]
        lines = class_lines(self.table.rows, width)
        if any(row.core for row in self.table.rows) and len(lines) < self.body_height:
            lines.append(((" * core class", "dim"),))
        return lines
