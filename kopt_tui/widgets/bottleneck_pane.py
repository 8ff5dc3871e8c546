"""Bottlenecks of the incumbent: what limits it, where, and what could be tried."""

from __future__ import annotations

import textwrap

from rich.cells import cell_len

from engine.journal.records import Bottleneck
from kopt_tui.widgets.pane import Pane, fit
from kopt_tui.widgets.tones import Line

LEAST = 12
"""Cells that a column gets at least."""


class BottleneckPane(Pane):
    """Two lines per bottleneck: the fact, then the advice."""

    TITLE = "bottlenecks"
    found: tuple[Bottleneck, ...] = ()
    whole = False
    """Wrap long texts instead of clipping them."""

    def set_found(self, found: tuple[Bottleneck, ...]) -> None:
        """Show these bottlenecks."""
        if found != self.found or not self._drawn:
            self.found = found
            self.note = f"{len(found)} of round {found[0].round}" if found else ""
            self.redraw()

    def compose_lines(self, width: int) -> list[Line]:
        if not self.found:
            return [((" none found yet", "dim"),)]
        lines: list[Line] = []
        limiter, places = _columns(self.found, width)
        for one, place in zip(self.found, places, strict=True):
            head: Line = ((f" {one.rank} ", "dim"), (f"{fit(one.limiter, limiter)} ", "bold"),
                          (f"{place} ", "plain"), (_metric(one), "info"))
            if self.whole:
                lines += [head, *_folded("   ", one.detail, width, "plain"),
                          *_folded("   → ", one.advice, width, "dim"), ()]
                continue
            lines.append((*head, (f"  {one.detail}", "plain")))
            if one.advice:
                lines.append((("   → ", "dim"), (one.advice, "dim")))
        return lines


def _columns(found: tuple[Bottleneck, ...], width: int) -> tuple[int, list[str]]:
    """Return the cells for what limits, and where it does: whole as long as there is room, where
    first. With little room a class stands without its kernel, if all have the same.
    """
    room = width - 5 - max(cell_len(_metric(one)) for one in found)
    limiter = max(cell_len(one.limiter) for one in found)
    places = ["/".join(part for part in (one.kernel, one.config_class) if part) for one in found]
    if max(map(cell_len, places)) > room - LEAST and len({one.kernel for one in found}) == 1:
        places = [one.config_class or one.kernel for one in found]
    widest = max(map(cell_len, places))
    limiter = min(limiter, max(LEAST, room - widest))
    widest = min(widest, max(LEAST, room - limiter))
    return limiter, [fit(place, widest) for place in places]


def _metric(one: Bottleneck) -> str:
    return one.metric + ("" if one.value is None else f" {one.value:.4g}")


def _folded(mark: str, text: str, width: int, tone: str) -> list[Line]:
    """Return a text in as many lines as it needs, nothing for an empty one."""
    rows = textwrap.wrap(text, max(20, width - len(mark) - 1))
    return [((mark if i == 0 else " " * len(mark), "dim"), (row, tone))
            for i, row in enumerate(rows)]
