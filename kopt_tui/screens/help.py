"""The help over any screen: all keys, searched by typing."""

from __future__ import annotations

from textual import events
from textual.binding import Binding

from kopt_tui.snapshot import phrases
from kopt_tui.widgets import keys
from kopt_tui.widgets.bars import edited
from kopt_tui.widgets.pane import Pane, PaneDialog, fit
from kopt_tui.widgets.tones import Line

DECISIONS = ("keep", "tie", "regression", "reject", "ask", "runner-up", "repair", "split")


class HelpPane(Pane):
    """The keys whose name or help contains the typed text; those of this screen come first."""

    TITLE = "keys"

    def __init__(self, scope: keys.Scope) -> None:
        super().__init__()
        self.scope = scope

    def matching(self) -> list[keys.Key]:
        """Return the keys that match the typed text, those of this screen first."""
        typed = self.filter.casefold()
        matching = [key for key in keys.KEYS
                    if typed in f"{keys.named(key.keys)} {key.label} {key.help}".casefold()]
        return sorted(matching, key=lambda key: not self._here(key))

    def _here(self, key: keys.Key) -> bool:
        return self.scope in key.scopes or "app" in key.scopes

    def title_note(self) -> str:
        return f"/{self.filter}" if self.filter else "type to search, esc closes"

    def compose_lines(self, width: int) -> list[Line]:
        lines: list[Line] = []
        for key in self.matching():
            here = self._here(key)
            place = "" if here else f"  ({', '.join(key.scopes)})"
            lines.append(((f" {fit(keys.named(key.keys), 18)} ", "bold info" if here else "dim"),
                          (f"{key.help}{place}", "plain" if here else "dim")))
        if not lines:
            return [((" no key matches", "dim"),)]
        if not self.filter:
            signs = ((f" {phrases.signed(word)} ", phrases.tone(word)) for word in DECISIONS)
            lines += [(), ((" verdicts ", "dim"), *signs)]
        return lines


class HelpScreen(PaneDialog[None]):
    """The table of keys over the screen that opened it."""

    BINDINGS = [  # noqa: RUF012
        Binding("down", "move(1)", show=False), Binding("up", "move(-1)", show=False),
        Binding("pagedown", "move(10)", show=False), Binding("pageup", "move(-10)", show=False),
    ]
    CSS = """
    HelpScreen { align: center middle; }
    HelpScreen #dialog { width: 90; max-width: 100%; height: 90%; padding: 0 1;
                         border: round $primary; background: $surface; }
    """

    def __init__(self, scope: keys.Scope) -> None:
        super().__init__()
        self.pane: HelpPane = HelpPane(scope)

    def action_move(self, step: int) -> None:
        self.pane.move(step)

    def on_key(self, event: events.Key) -> None:
        """Type to search; escape clears the text, then closes the help."""
        if event.key in ("escape", "ctrl+c") or (event.key == "question_mark"
                                                 and not self.pane.filter):
            event.stop()
            if event.key == "escape" and self.pane.filter:
                self.pane.filter = ""
                self.pane.redraw()
            else:
                self.dismiss()
        elif event.is_printable or event.key in ("backspace", "ctrl+u"):
            event.stop()
            self.pane.filter = edited(self.pane.filter, event)
            self.pane.top = 0
            self.pane.redraw()
