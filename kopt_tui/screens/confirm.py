"""The dialog before an engine is asked: names what it is about, rests on the safe answer.

Enter alone never does it: the focus has to be moved to the other answer first.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.screen import ModalScreen

from kopt_tui.snapshot.snapshot import Snapshot
from kopt_tui.widgets.pane import Pane
from kopt_tui.widgets.tones import Line, Span


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a dialog asks: facts as name and text, the safe answer and the other one.

    `over` looks at a snapshot and says why the question has no object any more, "" while it has.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    safe: str
    act: str
    over: Callable[[Snapshot], str] = lambda _: ""


class QuestionPane(Pane):
    """The question's text and its two answers."""

    DEFAULT_CSS = "QuestionPane { height: auto; }"

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question
        self.acting = False
        self.over = ""

    def compose_lines(self, width: int) -> list[Line]:
        lines: list[Line] = [((self.question.title, "bold"),), ()]
        for name, text in self.question.facts:
            first, *rest = textwrap.wrap(text, max(20, width - 12))[:4] or [""]
            lines.append(((f"{name:<11} ", "dim"), (first, "plain")))
            lines += [((" " * 12 + more, "plain"),) for more in rest]
        if self.over:
            return [*lines, (), ((f"! {self.over}", "warn bold"),), (),
                    (("▸ ", "bold"), (" Close ", "reverse bold"))]
        return [*lines, (), (*_answer(self.question.safe, not self.acting), ("    ", "plain"),
                             *_answer(self.question.act, self.acting)),
                ((" ←→ choose   enter answers   esc leaves everything as it is", "dim"),)]


def _answer(text: str, chosen: bool) -> tuple[Span, ...]:
    mark = ("▸ ", "bold") if chosen else ("  ", "plain")
    return mark, (f" {text} ", "reverse bold" if chosen else "plain")


class ConfirmScreen(ModalScreen[bool]):
    """Dismisses with True only for the answer that acts, chosen and then confirmed."""

    BINDINGS = [  # noqa: RUF012
        Binding("escape,q,ctrl+c", "answer(False)", show=False),
        Binding("left,h,shift+tab", "choose(False)", show=False),
        Binding("right,l,tab", "choose(True)", show=False),
        Binding("enter", "answer(True)", show=False),
    ]
    CSS = """
    ConfirmScreen { align: center middle; }
    ConfirmScreen #dialog {
        width: 72; max-width: 96%; height: auto; padding: 1 2; border: round $primary;
        background: $surface;
    }
    """

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.text = QuestionPane(question)

    def compose(self) -> ComposeResult:
        yield Container(self.text, id="dialog")

    def on_mount(self) -> None:
        self.text.focus()

    def show(self, snapshot: Snapshot) -> None:
        """Notice that the question has lost its object while it was being read."""
        over = self.text.question.over(snapshot)
        if over and not self.text.over:
            self.text.over, self.text.acting = over, False
            self.text.refresh(layout=True)
            self.text.redraw()

    def action_choose(self, acting: bool) -> None:
        self.text.acting = acting and not self.text.over
        self.text.redraw()

    def action_answer(self, entered: bool) -> None:
        self.dismiss(entered and self.text.acting and not self.text.over)
