"""The dialog before a request is sent: it names what is affected and focuses the safe answer.

Enter alone never sends anything: the focus must first be moved to the other answer.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from textual import events

from kopt_tui.control import ControlRequest
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import CampaignRow, Snapshot, WaitingRow
from kopt_tui.widgets.bars import edited
from kopt_tui.widgets.pane import Pane, PaneDialog, wrapped_under
from kopt_tui.widgets.tones import Line, Span

EFFECTS = {
    "pause": "the campaign pauses as soon as this round ends; resume starts the next round",
    "resume": "the next round starts",
    "stop": "the campaign ends now; what is under way is cut off, all that is recorded stays",
}


MOST_LINES = 4
"""The most lines of a fact that are shown."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question with its facts (name, text), the safe answer, and the one that acts.

    `expired` returns why the question no longer applies at a snapshot, "" while it does. With
    `takes_reason` what is typed is the reason for the answer that acts.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    safe: str
    act: str
    expired: Callable[[Snapshot], str] = lambda _: ""
    takes_reason: bool = False


class QuestionPane(Pane):
    """The question's text and its two answers."""

    DEFAULT_CSS = "QuestionPane { height: auto; }"

    def __init__(self, question: Question) -> None:
        super().__init__()
        self.question = question
        self.acts = False
        self.expired = ""
        self.reason = ""

    def compose_lines(self, width: int) -> list[Line]:
        lines: list[Line] = [((self.question.title, "bold"),), ()]
        for name, text in self.question.facts:
            lines += _fact(name, text, width)
        if self.expired:
            return [*lines, (), *wrapped_under((("! ", "warn bold"),), self.expired, width + 1,
                                               "warn bold"), (),
                    (("▸ ", "bold"), (" Close ", "reverse bold"))]
        if self.question.takes_reason:
            lines += [(), *wrapped_under((("reason      ", "dim"),), f"{self.reason}▏", width + 1)]
        return [*lines, (), (*_answer(self.question.safe, not self.acts), ("    ", "plain"),
                             *_answer(self.question.act, self.acts)),
                ((f" {'type why   ' if self.question.takes_reason else ''}←→ choose   "
                  "enter answers   esc changes nothing", "dim"),)]


def _fact(name: str, text: str, width: int) -> list[Line]:
    """Return a fact in at most MOST_LINES lines, the last of which shows that more follow."""
    lines = wrapped_under(((f"{name:<11} ", "dim"),), text, width + 1)
    cut = lines[:MOST_LINES]
    return cut if len(cut) == len(lines) else [*cut[:-1], (*cut[-1], (" …", "plain"))]


def _answer(text: str, chosen: bool) -> tuple[Span, ...]:
    mark = ("▸ ", "bold") if chosen else ("  ", "plain")
    return mark, (f" {text} ", "reverse bold" if chosen else "plain")


class ConfirmScreen(PaneDialog[str | None]):
    """Dismisses with the reason, which may be "", if the answer that acts is chosen, else None."""

    CSS = """
    ConfirmScreen { align: center middle; }
    ConfirmScreen #dialog {
        width: 72; max-width: 96%; height: auto; padding: 1 2; border: round $primary;
        background: $surface;
    }
    """

    def __init__(self, question: Question, snapshot: Snapshot) -> None:
        super().__init__()
        self.pane: QuestionPane = QuestionPane(question)
        self.pane.expired = question.expired(snapshot)

    def show(self, snapshot: Snapshot) -> None:
        """Expire the question if, by the new snapshot, it no longer applies."""
        pane = self.pane
        expired = pane.question.expired(snapshot)
        if expired and not pane.expired:
            pane.expired, pane.acts = expired, False
            pane.refresh(layout=True)
            pane.redraw()

    async def take_input(self, event: events.Key | events.Paste) -> None:
        pane, key = self.pane, event.key if isinstance(event, events.Key) else ""
        if pane.question.takes_reason and (
                isinstance(event, events.Paste) or event.is_printable
                or key in ("backspace", "ctrl+u")):
            pane.reason = edited(pane.reason, event)
            pane.refresh(layout=True)
            pane.redraw()
        elif key in ("left", "h", "shift+tab", "right", "l", "tab"):
            pane.acts = key in ("right", "l", "tab") and not pane.expired
            pane.redraw()
        elif key in ("escape", "q", "ctrl+c", "enter"):
            acts = key == "enter" and pane.acts and not pane.expired
            self.dismiss(pane.reason.strip() if acts else None)


def about_candidate(request: ControlRequest, waiting: WaitingRow) -> Question:
    """Return the question before an approval or a rejection."""
    name = phrases.short(request.candidate, 12)
    facts = (
        ("candidate", request.candidate), ("campaign", request.campaign),
        ("claim", waiting.candidate.hypothesis), ("measured", waiting.speedup or "nothing"),
        ("why it asks", waiting.doubts),
        ("verdict", phrases.unprefixed(waiting.measured)),
        ("waits since", phrases.clock(waiting.since)),
        ("on base", phrases.short(waiting.candidate.base_commit, 12)),
        ("built on it", waiting.resting),
        ("a model", waiting.review),
    )
    verb = "Approve" if request.verb == "approve" else "Reject"
    return Question(
        title=f"{verb} candidate {name}?", facts=tuple((key, text) for key, text in facts if text),
        safe="Let it wait", act=f"{verb} {name}",
        expired=lambda snapshot: _why_decided(snapshot, request),
        takes_reason=request.verb == "reject",
    )


def about_campaign(request: ControlRequest, row: CampaignRow) -> Question:
    """Return the question before a campaign is paused, resumed or stopped."""
    verb = request.verb.capitalize()
    effect = EFFECTS[request.verb]
    if request.verb == "resume" and row.engine.word != "alive":
        effect = "no engine is running: a new one starts and continues from the journal"
    elif request.verb == "resume" and row.campaign.state == "running":
        effect = "cancels the pause after this round"
    return Question(
        title=f"{verb} campaign {row.id}?",
        facts=(("campaign", row.id), ("state", f"{row.status}, round {row.campaign.round}"),
               ("effect", effect)),
        safe="Leave it as it is", act=f"{verb} it",
        expired=lambda snapshot: _why_ended(snapshot, request),
    )


def about_leaving(campaigns: str) -> Question:
    """Return the question before leaving a dashboard whose process runs the engine."""
    return Question(
        title="Quit and stop the campaign?",
        facts=(("running", campaigns or "the engine of this process"),
               ("effect", "the engine runs inside this process and stops with it; `kopt resume` "
                          "continues the campaign, and nothing recorded is lost")),
        safe="Stay", act="Stop it and quit")


def _why_decided(snapshot: Snapshot, request: ControlRequest) -> str:
    for row in snapshot.waiting:
        candidate = row.candidate
        if candidate.campaign == request.campaign and candidate.id == request.candidate:
            has_changed = (candidate.base_commit != request.expected_base
                           or row.verdict != request.expected_verdict)
            return "it was measured again: check the new verdict first" if has_changed else \
                row.obstacle if request.verb == "approve" else ""
    return "it was decided by another request and no longer waits"


def _why_ended(snapshot: Snapshot, request: ControlRequest) -> str:
    row = snapshot.row(request.campaign)
    unfinished = ("running", "paused", *(phrases.CUT if request.verb == "resume" else ()))
    if row is None or row.campaign.state not in unfinished:
        return f"the campaign is {row.campaign.state if row else 'gone'} now"
    return ""
