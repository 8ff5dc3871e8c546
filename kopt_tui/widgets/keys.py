"""The table of keys: what a key does, the hints of the bottom line and the help come from it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

Scope = Literal["app", "campaigns", "campaign", "candidate", "review", "gpus", "trace", "report",
                "transcript", "knowledge"]


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One action: its keys, the screens where they work, and its line in the help."""

    keys: str
    action: str
    label: str
    help: str
    scopes: tuple[Scope, ...] = ("app",)
    hint: bool = False
    control: bool = False
    """Sends a request to an engine: refused in a read-only dashboard."""


LISTS: tuple[Scope, ...] = ("campaigns", "campaign", "review", "trace", "gpus")
PANES: tuple[Scope, ...] = (*LISTS, "candidate", "report", "knowledge")
SCROLLED: tuple[Scope, ...] = (*PANES, "transcript")
OVER_OTHERS: tuple[Scope, ...] = ("candidate", "transcript", "knowledge")
OF_CAMPAIGN: tuple[Scope, ...] = ("campaigns", "campaign")
OF_CANDIDATE: tuple[Scope, ...] = ("campaign", "candidate", "review")

MODES = (
    ("1", "Campaigns", "All campaigns"), ("2", "Campaign", "One campaign, live"),
    ("3", "Review", "Candidates that wait for your approval"),
    ("4", "Trace", "What limits the best kernel"), ("5", "GPUs", "The devices of this machine"),
    ("6", "Report", "The campaign's report"),
)
"""Key, title and help of each mode. `trace` has the class TraceScreen in `screens/trace.py`."""
MODE_NAMES = tuple(title.lower() for _, title, _ in MODES)

KEYS: tuple[Key, ...] = (
    Key(keys="enter", action="open", label="open", hint=True,
        scopes=("campaigns", "campaign", "review", "knowledge"),
        help="Open what is under the cursor"),
    Key(keys="a", action="approve", label="approve", scopes=OF_CANDIDATE, hint=True, control=True,
        help="Approve a waiting candidate; asks first"),
    Key(keys="x", action="reject", label="reject", scopes=OF_CANDIDATE, hint=True, control=True,
        help="Reject a waiting candidate; asks first"),
    Key(keys="m", action="measure_again", label="measure again", scopes=("candidate",), hint=True,
        control=True, help="Measure a near gain again"),
    Key(keys="p", action="pause", label="pause", scopes=OF_CAMPAIGN, hint=True, control=True,
        help="Pause, resume, or undo a pause; asks first"),
    Key(keys="S", action="stop", label="stop", scopes=OF_CAMPAIGN, control=True,
        help="Stop the campaign; asks first"),
    Key(keys="j,down", action="move(1)", label="down", scopes=SCROLLED, help="Next line"),
    Key(keys="k,up", action="move(-1)", label="up", scopes=SCROLLED, help="Previous line"),
    Key(keys="ctrl+d,pagedown", action="page(1)", label="page down", scopes=SCROLLED,
        help="One page down"),
    Key(keys="ctrl+u,pageup", action="page(-1)", label="page up", scopes=SCROLLED,
        help="One page up"),
    Key(keys="g,home", action="edge(-1)", label="first", scopes=SCROLLED, help="First line"),
    Key(keys="G,end", action="edge(1)", label="last", scopes=SCROLLED,
        help="Last line; a log or transcript follows again"),
    Key(keys="tab,l,right", action="pane(1)", label="pane", scopes=PANES, hint=True,
        help="Next pane"),
    Key(keys="shift+tab,h,left", action="pane(-1)", label="previous pane", scopes=PANES,
        help="Previous pane"),
    Key(keys="z", action="zoom", label="zoom", scopes=PANES, help="Show only this pane"),
    Key(keys="slash", action="filter", label="filter", scopes=LISTS, hint=True,
        help="Filter the rows; a leading ! inverts it"),
    Key(keys="slash", action="filter", label="search", scopes=("transcript",), hint=True,
        help="Search the transcript"),
    Key(keys="slash", action="filter", label="search", scopes=("knowledge",), hint=True,
        help="Show pages that contain all words"),
    Key(keys="n", action="match(1)", label="next match", scopes=("transcript",), hint=True,
        help="Next match; wraps after the last"),
    Key(keys="N", action="match(-1)", label="previous match", scopes=("transcript",),
        help="Previous match"),
    Key(keys="right_square_bracket", action="step(1)", label="next step", scopes=("transcript",),
        hint=True, help="Next step of the agent"),
    Key(keys="left_square_bracket", action="step(-1)", label="step back", scopes=("transcript",),
        hint=True, help="Start of this step, then the one before"),
    Key(keys="right_curly_bracket", action="attempt(1)", label="next attempt",
        scopes=("transcript",), help="The slot's next attempt, any round"),
    Key(keys="left_curly_bracket", action="attempt(-1)", label="previous attempt",
        scopes=("transcript",), help="The slot's previous attempt, any round"),
    Key(keys="escape", action="back", label="back", scopes=SCROLLED,
        help="Undo filter, search or zoom, else leave the screen"),
    *(Key(keys=key, action=f"mode('{title.lower()}')", label=title.lower(), help=help)
      for key, title, help in MODES),
    Key(keys="K", action="knowledge", label="knowledge",
        help="Pages about ops, hardware and languages"),
    Key(keys="question_mark,ctrl+p", action="help", label="help", hint=True,
        help="This list"),
    Key(keys="q,ctrl+c", action="leave", label="quit", hint=True, help="Leave the dashboard"),
    Key(keys="t", action="transcript", label="transcript", scopes=OF_CANDIDATE, hint=True,
        help="What the agent of a slot or candidate did"),
)

NAMES = {"slash": "/", "left_square_bracket": "[", "right_square_bracket": "]",
         "left_curly_bracket": "{", "right_curly_bracket": "}",
         "question_mark": "?", "escape": "esc", "pagedown": "page down",
         "pageup": "page up", "down": "↓", "up": "↑", "left": "←", "right": "→"}


def bound(name: str, scope: Scope) -> Key | None:
    """Return what a key does on a screen, None for nothing."""
    return next((key for key in KEYS if works(key, scope) and name in key.keys.split(",")), None)


def works(key: Key, scope: Scope) -> bool:
    """Return whether a key of the table does something on a screen."""
    return scope in key.scopes or "app" in key.scopes


def named(keys: str) -> str:
    """Return keys as a person reads them: `j ↓`."""
    return " ".join(NAMES.get(key, key) for key in keys.split(","))


def hints(scope: Scope, *, readonly: bool,
          labels: Mapping[str, str] = MappingProxyType({})) -> tuple[tuple[str, str], ...]:
    """Return the hints of the bottom line: each a key and its label.

    `labels` are those of actions for what the screen shows, "" where one would be refused.
    """
    shown = [key for key in KEYS if key.hint and works(key, scope)]
    hints = [(named(key.keys.split(",")[0]), label) for key in shown
             if (label := labels.get(key.action, key.label)) and not (readonly and key.control)]
    return tuple([*hints, ("esc", "back")] if scope in OVER_OTHERS else hints)
