"""The top line, which shows the modes, and the bottom line: keys, messages, the filter."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len
from textual import events

from kopt_tui.widgets.keys import MODES
from kopt_tui.widgets.pane import ContentPane
from kopt_tui.widgets.tones import Line, Span


class TopBar(ContentPane[int], can_focus=False):
    """The modes with their keys, how many candidates wait for approval, and the kind of session."""

    DEFAULT_CSS = "TopBar { height: 1; width: 1fr; }"
    content: int = 0

    def __init__(self, mode: str, session: str) -> None:
        super().__init__()
        self.mode = mode
        self.session = session

    def compose_lines(self, width: int) -> list[Line]:
        parts: list[Span] = []
        for key, title, _ in MODES:
            label = f"{title} {self.content}?" if title == "Review" and self.content else title
            tones = "reverse bold" if title.lower() == self.mode else "plain"
            parts.append((f" {key} {label} ", tones))
        right = f"{self.session} " if self.session else ""
        room = width - sum(cell_len(text) for text, _ in parts) - len(right)
        if room >= 6:
            parts.insert(0, (" kopt ", "bold info"))
            room -= 6
        return [(*parts, (" " * max(0, room), "plain"), (right, "warn"))]


class KeyBar(ContentPane[str], can_focus=False):
    """The keys of the screen; a message replaces them until the next key, a prompt until enter.

    Its content is a lasting problem, which replaces keys and messages, "" when it is over.
    """

    DEFAULT_CSS = "KeyBar { height: 1; width: 1fr; dock: bottom; }"
    content: str = ""

    def __init__(self, hints: tuple[tuple[str, str], ...]) -> None:
        super().__init__()
        self.hints = hints
        self._message: Span | None = None
        self._prompt: str | None = None
        self._about_prompt = ""
        self._on_change: Callable[[str], None] = lambda _: None

    def offer(self, hints: tuple[tuple[str, str], ...]) -> None:
        """Show other keys."""
        if hints != self.hints:
            self.hints = hints
            self.redraw()

    def say(self, text: str, tone: str = "plain") -> None:
        """Show a message in place of the keys."""
        self._message = (text, tone)
        self.redraw()

    def hush(self) -> None:
        """Show the keys again."""
        if self._message is not None:
            self._message = None
            self.redraw()

    def ask(self, text: str, on_change: Callable[[str], None], about: str) -> None:
        """Let a person edit a text: `on_change` is called after every key."""
        self._prompt, self._on_change, self._about_prompt = text, on_change, about
        self.redraw()

    def compose_lines(self, width: int) -> list[Line]:
        if self._prompt is not None:
            return [((" /", "bold info"), (self._prompt, "plain"), ("▏", "bold info"),
                     (f"  {self._about_prompt}", "dim"))]
        if self.content:
            return [((f" ! {self.content}", "bad bold"),)]
        if self._message is not None:
            return [((" ", "plain"), self._message)]
        parts: list[Span] = [(" ", "plain")]
        used = 1
        for key, label in self.hints:
            used += cell_len(key) + cell_len(label) + 3
            if used > width:
                break
            parts += [(key, "bold info"), (f" {label}  ", "plain")]
        return [tuple(parts)]

    def takes(self, event: events.Key | events.Paste) -> bool:
        """Edit the text that is asked for; return False if no text is asked for."""
        if self._prompt is None:
            self.hush()
            return False
        if isinstance(event, events.Key) and event.key in ("enter", "escape", "ctrl+c"):
            if event.key != "enter":
                self._on_change("")
            self._prompt = None
        else:
            self._prompt = edited(self._prompt, event)
            self._on_change(self._prompt)
        self.redraw()
        return True


def edited(text: str, event: events.Key | events.Paste) -> str:
    """Return a line of at most 200 characters after a key or a paste."""
    if isinstance(event, events.Paste):
        return (text + "".join(filter(str.isprintable, event.text)))[:200]
    if event.key == "backspace":
        return text[:-1]
    if event.key == "ctrl+u":
        return ""
    return (text + (event.character or "" if event.is_printable else ""))[:200]
