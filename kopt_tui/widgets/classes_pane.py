"""The config classes of one verdict: what each gained, how sure that is, how far it can go."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len

from harness.verdict import Row
from kopt_tui.snapshot import verdict_words
from kopt_tui.snapshot.snapshot import ClassTable
from kopt_tui.widgets.pane import ContentPane, fit
from kopt_tui.widgets.tones import Line

COLUMNS = {"class": 12, "outcome": 10, "speedup": 18, "latency": 9, "before": 9, "roofline": 8,
           "pairs": 5}
"""Columns and their least widths in a terminal; those in WIDER grow with their longest entry.

Columns are dropped from the right on a narrow pane, and where the names of classes would be
clipped to the same text.
"""
WIDER = {"outcome": "outcome", "speedup": "speedup", "latency": "latency", "before": "incumbent"}
"""Columns that are as wide as their longest entry, and the keys of these entries."""
LONGEST_NAME = 32
"""The greatest width that a class's name may take."""

LEFT = ("class", "outcome", "speedup")


def class_lines(rows: tuple[Row, ...], width: int,
                cells_of: Callable[[Row], dict[str, str]] = verdict_words.class_cells,
                ) -> list[Line]:
    """Return a table of config classes: a line of headings and one line per class."""
    if not rows:
        return [((" no class was measured", "dim"),)]
    cells = list(map(cells_of, rows))
    sizes, room = _sizes(rows, cells, width)
    heading = " ".join(fit(name, size, right=name not in LEFT) for name, size in sizes.items())
    return [((f" {heading}", "dim"),), *(_row(row, cells_of_row, sizes, room)
                                         for row, cells_of_row in zip(rows, cells, strict=True))]


def _sizes(rows: tuple[Row, ...], cells: list[dict[str, str]],
           width: int) -> tuple[dict[str, int], int]:
    """Return the columns that fit, with their widths, and the width left for a note."""
    names = list(dict.fromkeys(map(_name, rows)))
    longest = min(LONGEST_NAME, max(cell_len(name) for name in names))
    sizes = COLUMNS | {name: max(COLUMNS[name], *(cell_len(shown[cell]) for shown in cells))
                       for name, cell in WIDER.items()}
    empty = [] if any(row.pct_of_roofline is not None for row in rows) else ["roofline"]
    while True:
        room = width - sum(size + 1 for size in sizes.values())
        wider = sizes["class"] + max(0, min(room, longest - sizes["class"]))
        is_unique = len({fit(name, wider) for name in names}) == len(names)
        if len(sizes) == 1 or (room >= 0 and (is_unique or sizes.keys() <= set(LEFT))):
            return {**sizes, "class": wider}, room - (wider - sizes["class"]) - 1
        del sizes[empty.pop() if empty else list(sizes)[-1]]


def _name(row: Row) -> str:
    return f"{row.config_class}*" if row.core else row.config_class


def _row(row: Row, cells: dict[str, str], sizes: dict[str, int], room: int) -> Line:
    cells = cells | {"class": _name(row), "before": cells["incumbent"]}
    tones = {"outcome": cells["tone"], "before": "dim", "pairs": "dim"}
    spans = [(" " + fit(cells[name], size, right=name not in LEFT), tones.get(name, "plain"))
             for name, size in sizes.items()]
    if row.note and room > 8:
        spans.append((fit(f" {row.note}", room), "dim"))
    return tuple(spans)


class ClassesPane(ContentPane[ClassTable | None]):
    """The config classes of one verdict.

    It is that of the headline; without one, of what is kept; else of the fastest candidate, or of
    the baseline.
    """

    TITLE = "classes"
    content: ClassTable | None = None

    def title_note(self) -> str:
        return f"of {self.content.title}" if self.content else ""

    def compose_lines(self, width: int) -> list[Line]:
        if self.content is None:
            return [((" nothing has been measured yet", "dim"),)]
        lines = class_lines(self.content.rows, width, verdict_words.baseline_cells
                            if self.content.is_baseline else verdict_words.class_cells)
        if any(row.core for row in self.content.rows) and len(lines) < self.body_height:
            lines.append(((" * core class", "dim"),))
        lines += [((fit(f" {line}", width), "dim"),) for line in self.content.references]
        return lines
