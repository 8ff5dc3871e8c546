"""Config classes of one verdict: what each shape gained, how sure that is, how far it can go."""

from __future__ import annotations

import math

from harness.verdict import Row
from kopt_tui import words
from kopt_tui.snapshot import ClassTable, Speedup
from kopt_tui.widgets.pane import Pane, fit
from kopt_tui.widgets.tones import Line

COLUMNS = {"class": 12, "outcome": 10, "speedup": 18, "latency": 9, "before": 9, "roofline": 8,
           "pairs": 5}
"""Columns and their widths in cells; from the right they give way on a narrow pane."""

LEFT = ("class", "outcome", "speedup")


def class_lines(rows: tuple[Row, ...], width: int) -> list[Line]:
    """Return a table of config classes: a line of headings and one line per class."""
    if not rows:
        return [((" no class was measured", "dim"),)]
    names, room = [], width - 1
    for name, size in COLUMNS.items():
        room -= size + 1
        if room >= -1:
            names.append(name)
    heading = " ".join(fit(name, COLUMNS[name], right=name not in LEFT) for name in names)
    return [((f" {heading}", "dim"),), *(_row(row, names, room) for row in rows)]


def _row(row: Row, names: list[str], room: int) -> Line:
    outcome = row.outcome if row.correct else "broken"
    texts = {
        "class": f"{row.config_class}*" if row.core else row.config_class,
        "outcome": "not timed" if outcome == "unmeasured" else words.signed(outcome),
        "speedup": words.speedup(class_speedup(row)), "latency": words.micros(row.latency_us),
        "before": words.micros(row.incumbent_us), "pairs": str(row.pairs or ""),
        "roofline": "" if row.pct_of_roofline is None else f"{row.pct_of_roofline:.0f}%",
    }
    tones = {"outcome": words.tone(outcome), "before": "dim", "pairs": "dim"}
    spans = [(" " + fit(texts[name], COLUMNS[name], right=name not in LEFT),
              tones.get(name, "plain")) for name in names]
    if row.note and room > 8:
        spans.append((fit(f" {row.note}", room), "dim"))
    return tuple(spans)


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
