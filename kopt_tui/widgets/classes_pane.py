"""Config classes of one verdict: what each shape gained, how sure that is, how far it can go."""

from __future__ import annotations

import math

from rich.cells import cell_len

from harness.verdict import Row
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import ClassTable, Speedup
from kopt_tui.widgets.pane import Pane, fit
from kopt_tui.widgets.tones import Line

COLUMNS = {"class": 12, "outcome": 10, "speedup": 18, "latency": 9, "before": 9, "roofline": 8,
           "pairs": 5}
"""Columns and their widths in cells; from the right they give way on a narrow pane, and where names
of classes could not be told apart.
"""
WIDEST = 32
"""Cells that the names of classes get at most."""

LEFT = ("class", "outcome", "speedup")


def class_lines(rows: tuple[Row, ...], width: int) -> list[Line]:
    """Return a table of config classes: a line of headings and one line per class."""
    if not rows:
        return [((" no class was measured", "dim"),)]
    sizes, room = _sizes(rows, width)
    heading = " ".join(fit(name, size, right=name not in LEFT) for name, size in sizes.items())
    return [((f" {heading}", "dim"),), *(_row(row, sizes, room) for row in rows)]


def _sizes(rows: tuple[Row, ...], width: int) -> tuple[dict[str, int], int]:
    """Return the columns that have room, with their widths, and what is left of the width."""
    texts = list(dict.fromkeys(map(_name, rows)))
    wanted = min(WIDEST, max(cell_len(text) for text in texts))
    sizes = dict(COLUMNS)
    empty = [] if any(row.pct_of_roofline is not None for row in rows) else ["roofline"]
    while True:
        room = width - sum(size + 1 for size in sizes.values())
        wider = sizes["class"] + max(0, min(room, wanted - sizes["class"]))
        apart = len({fit(text, wider) for text in texts}) == len(texts)
        if len(sizes) == 1 or (room >= 0 and (apart or sizes.keys() <= set(LEFT))):
            return {**sizes, "class": wider}, room - (wider - sizes["class"]) - 1
        del sizes[empty.pop() if empty else list(sizes)[-1]]


def _name(row: Row) -> str:
    return f"{row.config_class}*" if row.core else row.config_class


def _row(row: Row, sizes: dict[str, int], room: int) -> Line:
    outcome = row.outcome if row.correct else "broken"
    texts = {
        "class": _name(row),
        "outcome": "not timed" if outcome == "unmeasured" else phrases.signed(outcome),
        "speedup": phrases.speedup(class_speedup(row)), "latency": phrases.micros(row.latency_us),
        "before": phrases.micros(row.incumbent_us), "pairs": str(row.pairs or ""),
        "roofline": "" if row.pct_of_roofline is None else f"{row.pct_of_roofline:.0f}%",
    }
    tones = {"outcome": phrases.tone(outcome), "before": "dim", "pairs": "dim"}
    spans = [(" " + fit(texts[name], size, right=name not in LEFT), tones.get(name, "plain"))
             for name, size in sizes.items()]
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
