"""Bottlenecks of the incumbent: what limits it, where, and what could be tried."""

from __future__ import annotations

import textwrap

from engine.journal.records import Bottleneck
from kopt_tui.widgets.pane import Pane, fit
from kopt_tui.widgets.tones import Line


class LimitsPane(Pane):
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
        for one in self.found:
            where = "/".join(part for part in (one.kernel, one.config_class) if part)
            value = "" if one.value is None else f" {one.value:.4g}"
            head: Line = ((f" {one.rank} ", "dim"), (f"{fit(one.limiter, 16)} ", "bold"),
                          (f"{fit(where, 22 if width > 72 else 14)} ", "plain"),
                          (f"{one.metric}{value}", "info"))
            if self.whole:
                lines += [head, *_folded("   ", one.detail, width, "plain"),
                          *_folded("   → ", one.advice, width, "dim"), ()]
                continue
            lines.append((*head, (f"  {one.detail}", "plain")))
            if one.advice:
                lines.append((("   → ", "dim"), (one.advice, "dim")))
        return lines


def _folded(mark: str, text: str, width: int, tone: str) -> list[Line]:
    """Return a text in as many lines as it needs, nothing for an empty one."""
    rows = textwrap.wrap(text, max(20, width - len(mark) - 1))
    return [((mark if i == 0 else " " * len(mark), "dim"), (row, tone))
            for i, row in enumerate(rows)]
