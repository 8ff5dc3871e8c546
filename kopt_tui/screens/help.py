"""The help over any screen: all keys, searched by typing; enter does what the chosen one does."""

from __future__ import annotations

from typing import cast

from textual import events

from kopt_tui.screens.base import DashboardApp
from kopt_tui.snapshot import phrases
from kopt_tui.widgets import keys
from kopt_tui.widgets.bars import edited
from kopt_tui.widgets.list_pane import ListPane
from kopt_tui.widgets.pane import PaneDialog, fit, matches
from kopt_tui.widgets.tones import Line

OUTCOMES = ("keep", "waiting", "tie", "regression", "failed", "baseline")
"""Outcomes of rounds, whose signs the chart shows without the words."""
MOVES = {"down": 1, "up": -1, "pagedown": 10, "pageup": -10}


class HelpPane(ListPane[keys.Key]):
    """The keys whose name or help contains the typed text; those of this screen come first."""

    TITLE = "keys"
    EMPTY = "no key matches"

    def __init__(self, scope: keys.Scope) -> None:
        super().__init__()
        self.scope = scope
        self.note = "type to search, enter runs it, esc closes"
        self.items = self.shown = tuple(
            sorted(keys.KEYS, key=lambda key: not keys.works(key, scope)))

    def key(self, item: keys.Key) -> str:
        return item.keys

    def headings(self, width: int) -> Line:
        signs = ((f" {phrases.signed(word)} ", phrases.tone(word)) for word in OUTCOMES)
        return ((" rounds ", "dim"), *signs)

    def row(self, item: keys.Key, width: int) -> Line:
        here = keys.works(item, self.scope)
        place = "" if here else f"  ({item.scopes[0] if len(item.scopes) == 1 else 'elsewhere'})"
        return ((f"{fit(keys.named(item.keys), 18)} ", "bold info" if here else "dim"),
                (f"{item.help}{place}", "plain" if here else "dim"))

    def _matches(self, item: keys.Key) -> bool:
        return matches(self.filter, f"{keys.named(item.keys)} {item.label} {item.help}")


class HelpScreen(PaneDialog[None]):
    """The table of keys over the screen that opened it."""

    CSS = """
    HelpScreen { align: center middle; }
    HelpScreen #dialog { width: 90; max-width: 100%; height: 90%; padding: 0 1;
                         border: round $primary; background: $surface; }
    """

    def __init__(self, scope: keys.Scope) -> None:
        super().__init__()
        self.pane: HelpPane = HelpPane(scope)
        self.typed = ""

    async def take_input(self, event: events.Key | events.Paste) -> None:
        """Type to search; escape clears the text, then closes the help."""
        pane, key = self.pane, event.key if isinstance(event, events.Key) else ""
        if key in MOVES:
            pane.move(MOVES[key])
        elif key == "enter":
            chosen = pane.current
            if chosen is not None and keys.works(chosen, pane.scope):
                self.dismiss()
                await cast(DashboardApp, self.app).perform(chosen)
        elif key == "ctrl+c" or (key in ("escape", "question_mark") and not self.typed):
            self.dismiss()
        else:
            self.typed = "" if key == "escape" else edited(self.typed, event)
            pane.set_filter(self.typed)
