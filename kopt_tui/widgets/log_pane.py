"""The newest events; the log follows them unless a person has scrolled up from the end."""

from __future__ import annotations

from collections.abc import Sequence

from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import LogLine
from kopt_tui.widgets.pane import ContentPane, matches
from kopt_tui.widgets.tones import Line


class LogPane(ContentPane[tuple[LogLine, ...]]):
    """One line per event, the newest at the bottom."""

    TITLE = "log"
    FILTERS = True
    content: tuple[LogLine, ...] = ()
    follows = True
    _first_seq: int | None = None
    """The event in the first line, which stays there while older ones are dropped."""

    def set_filter(self, text: str) -> None:
        super().set_filter(text)
        self.follows = True
        self.redraw()

    @property
    def shown(self) -> tuple[LogLine, ...]:
        """Return the events that match the filter."""
        return tuple(event for event in self.content if matches(self.filter, event.text))

    def title_note(self) -> str:
        parts = (self.filter and f"/{self.filter}", "" if self.follows else "held; G follows")
        return "  ".join(filter(None, parts))

    def compose_lines(self, width: int) -> Sequence[Line]:
        lines = [((f" {phrases.clock(event.at)} ", "dim"), (event.text, _tone(event.kind)))
                 for event in self.shown]
        return lines or [((" nothing recorded yet", "dim"),)]

    def redraw(self) -> None:
        shown, first = self.shown, self._first_seq
        if self.follows:
            self.top = max(0, max(1, len(shown)) - self.body_height)
        elif first is not None:
            self.top = next((i for i, event in enumerate(shown) if event.seq >= first), 0)
        super().redraw()
        self._first_seq = shown[self.top].seq if self.top < len(shown) else None

    def move(self, step: int) -> None:
        most = max(0, len(self.shown) - self.body_height)
        self.top = max(0, min(self.top + step, most))
        self.follows = self.top == most
        self._first_seq = None
        self.redraw()

    def edge(self, side: int) -> None:
        self.move(side * len(self.content))


def _tone(kind: str) -> str:
    if kind in ("warning", "rollback"):
        return "warn"
    if kind == "campaign.best":
        return "good"
    return "plain" if kind in ("verdict", "decision") else "dim"
