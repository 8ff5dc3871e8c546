"""The log tail: it follows until a person scrolls up, and again once at the end."""

from __future__ import annotations

from collections.abc import Sequence

from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import LogLine
from kopt_tui.widgets.pane import Pane
from kopt_tui.widgets.tones import Line


class LogPane(Pane):
    """The newest events, one line each, newest at the bottom."""

    TITLE = "log"
    FILTERS = True

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.events: tuple[LogLine, ...] = ()
        self.follows = True
        self._at_top: int | None = None

    def set_events(self, events: tuple[LogLine, ...]) -> None:
        """Show these events."""
        if events != self.events or not self._drawn:
            self.events = events
            self.redraw()

    def set_filter(self, wanted: str) -> None:
        super().set_filter(wanted)
        self.follows = True
        self.redraw()

    @property
    def shown(self) -> tuple[LogLine, ...]:
        """Return the events that the filter lets through."""
        wanted = self.wanted.casefold()
        if not wanted.lstrip("!"):
            return self.events
        no = wanted[0] == "!"
        return tuple(e for e in self.events if (wanted.lstrip("!") in e.text.casefold()) != no)

    def title_note(self) -> str:
        parts = [f"/{self.wanted}"] if self.wanted else []
        return "  ".join([*parts, "" if self.follows else "held; G follows"]).strip()

    def compose_lines(self, width: int) -> Sequence[Line]:
        lines = [((f" {phrases.clock(e.at)} ", "dim"), (e.text, _tone(e.kind))) for e in self.shown]
        return lines or [((" nothing recorded yet", "dim"),)]

    def redraw(self) -> None:
        shown = self.shown
        if self.follows:
            self.top = max(0, max(1, len(shown)) - self.body_height)
        elif self._at_top is not None:
            self.top = next((i for i, e in enumerate(shown) if e.seq >= (self._at_top or 0)), 0)
        super().redraw()
        self._at_top = shown[self.top].seq if self.top < len(shown) else None

    def move(self, step: int) -> None:
        most = max(0, len(self.shown) - self.body_height)
        self.top = max(0, min(self.top + step, most))
        self.follows = self.top == most
        self._at_top = None
        self.redraw()

    def edge(self, side: int) -> None:
        self.move(side * len(self.events))


def _tone(kind: str) -> str:
    if kind in ("warning", "rollback"):
        return "warn"
    if kind == "campaign.best":
        return "good"
    return "plain" if kind in ("verdict", "decision") else "dim"
