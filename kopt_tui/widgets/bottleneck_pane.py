"""The bottlenecks of the incumbent: what limits it, where, and what could be tried."""

from __future__ import annotations

from rich.cells import cell_len

from engine.journal.records import Bottleneck
from engine.records import present_limits
from kopt_tui.widgets.pane import ContentPane, fit, wrapped_under
from kopt_tui.widgets.tones import Line

NARROWEST = 12
"""The fewest cells that a column gets."""


class BottleneckPane(ContentPane[tuple[Bottleneck, ...]]):
    """Two lines per bottleneck: the fact, then the advice."""

    TITLE = "bottlenecks"
    content: tuple[Bottleneck, ...] = ()
    routing = ""
    """Into which languages agents rewrite the kernel."""
    wraps = False
    """Whether long texts are wrapped instead of clipped."""

    def show(self, bottlenecks: tuple[Bottleneck, ...], routing: str) -> None:
        """Show the bottlenecks of a round and the routing of its rewrites."""
        if routing != self.routing:
            self.routing, self._drawn = routing, []
        self.set_content(bottlenecks)

    def title_note(self) -> str:
        return f"{len(self.content)} of round {self.content[0].round}" if self.content else ""

    def compose_lines(self, width: int) -> list[Line]:
        lines: list[Line] = []
        if self.routing:
            lines += wrapped_under(((" ⇄ ", "dim"),), self.routing, width, "dim") \
                if self.wraps else [((" ⇄ ", "dim"), (self.routing, "plain"))]
        if not self.content:
            return [((" none found yet", "dim"),), *lines]
        limiter_width, places = _columns(self.content, width)
        advices = present_limits.advice_once(self.content)
        for bottleneck, place, advice in zip(self.content, places, advices, strict=True):
            head: Line = ((f" {bottleneck.rank} ", "dim"),
                          (f"{fit(bottleneck.limiter, limiter_width)} ", "bold"),
                          (f"{place} ", "plain"), (_metric(bottleneck), "info"))
            if self.wraps:
                lines += [head, *wrapped_under((("   ", "dim"),), bottleneck.detail, width),
                          *wrapped_under((("   → ", "dim"),), advice, width, "dim"), ()]
                continue
            lines.append((*head, (f"  {bottleneck.detail}", "plain")))
            if advice:
                lines.append((("   → ", "dim"), (advice, "dim")))
        return lines


def _columns(bottlenecks: tuple[Bottleneck, ...], width: int) -> tuple[int, list[str]]:
    """Return the width of the column of limiters, and each place (kernel/class) cut to its column.

    On a narrow screen a kernel that all share is left out; then limiters are cut, then places.
    """
    room = width - 5 - max(cell_len(_metric(bottleneck)) for bottleneck in bottlenecks)
    limiter = max(cell_len(bottleneck.limiter) for bottleneck in bottlenecks)
    places = ["/".join(filter(None, (bottleneck.kernel, bottleneck.config_class)))
              for bottleneck in bottlenecks]
    has_one_kernel = len({bottleneck.kernel for bottleneck in bottlenecks}) == 1
    if max(map(cell_len, places)) > room - NARROWEST and has_one_kernel:
        places = [bottleneck.config_class or bottleneck.kernel for bottleneck in bottlenecks]
    widest = max(map(cell_len, places))
    limiter = min(limiter, max(NARROWEST, room - widest))
    widest = min(widest, max(NARROWEST, room - limiter))
    return limiter, [fit(place, widest) for place in places]


def _metric(bottleneck: Bottleneck) -> str:
    return present_limits.value(bottleneck) or bottleneck.metric
