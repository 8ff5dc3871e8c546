"""A transcript as lines: follows its end unless a person has scrolled up, and finds a text.

Only what is visible is wrapped and drawn; the place in the transcript is an entry and a row of it.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from textual.message import Message

from engine.workers.transcript import TranscriptEntry
from harness.formats.quantities import counted, dollars
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import AttemptRef, SlotRow
from kopt_tui.snapshot.transcript_feed import TranscriptPart
from kopt_tui.widgets.pane import ContentPane, Pane, wrapped_under
from kopt_tui.widgets.tones import Line, Span
from kopt_tui.widgets.transcript_rows import EntryRows

Place = tuple[int, int]
"""An entry and one of its rows, by index."""


class TranscriptPane(Pane):
    """The entries of one attempt, by role, with step, command, exit code and output."""

    TITLE = "transcript"
    FILTERS = True
    FILTER_HELP = "enter keeps the search, n and N jump to matches, esc ends it"

    class SearchChanged(Message):
        """Another text is searched for."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[TranscriptEntry] = []
        self.hits: tuple[int, ...] = ()
        self.note = "reading"
        self.follows = True
        self.at: Place = (0, 0)
        """The first visible row."""
        self._hit: Place | None = None
        self._is_at_hit = False
        """Whether nobody has scrolled since the hit was shown."""
        self._is_sought = False
        """Whether a new query's first match is still to be shown."""
        self._cut: dict[int, EntryRows] = {}
        self._cut_for: tuple[int, str] = (0, "")

    # Contents.

    def take(self, part: TranscriptPart) -> None:
        """Show a part that the feed has posted."""
        if not part.first:
            self._cut.clear()
            self._hit, self.at, self.follows = None, (0, 0), True
        self.entries[part.first:] = part.entries
        self.note = part.note
        if part.query == self.filter.casefold():
            self.hits = part.hits
            if self._is_sought and self.hits:
                self.find(-1 if self.follows else 1)
            self._is_sought = False
        self.redraw()

    def set_filter(self, text: str) -> None:
        """Search for a text; "" ends that."""
        super().set_filter(text)
        self.hits, self._hit, self._is_sought = (), None, bool(self.filter)
        self.post_message(self.SearchChanged())
        self.redraw()

    def title_note(self) -> str:
        parts = []
        if self.filter:
            parts.append(f"/{self.filter} in {len(self.hits)} of {len(self.entries)} entries")
        if self.follows:
            parts.append("follows the end" if self.entries else "")
        else:
            step = self.entries[min(self.at[0], len(self.entries) - 1)].step
            parts.append(f"step {step} of {self.entries[-1].step}  held; G follows")
        return "  ".join((*parts, *([self.note] if self.entries and self.note else [])))

    @property
    def came(self) -> str:
        """Return how many steps the attempt has made, and their cost: `12 steps $0.0410`."""
        last = self.entries[-1] if self.entries else None
        return "" if last is None or not last.step else \
            f"{counted(last.step, 'step')} {dollars(last.cost_usd)}"

    def rows(self, index: int) -> EntryRows:
        """Return an entry in rows, from a cache of some 300 entries."""
        key = (self.size.width, self.filter)
        if key != self._cut_for or len(self._cut) > 300:
            self._cut.clear()
            self._cut_for = key
        if index not in self._cut:
            self._cut[index] = EntryRows(self.entries[index], *key)
        return self._cut[index]

    # Drawing.

    def frame(self, width: int) -> list[Line]:
        if not self.entries:
            return [self._title(width),
                    *wrapped_under(((" ", "dim"),), self.note, width, "dim")]
        self.at = self._last_page() if self.follows else self._moved(self.at, 0)
        lines: list[Line] = []
        index, row = self.at
        while len(lines) < self.body_height and index < len(self.entries):
            cut = self.rows(index)
            lines += [cut.line(at, width, is_hit=(index, at) == self._hit)
                      for at in range(row, min(len(cut.rows), row + self.body_height))]
            index, row = index + 1, 0
        return [self._title(width), *lines[:self.body_height]]

    # Places.

    def _last_page(self) -> Place:
        """Return the first row of the last page."""
        need = max(1, self.body_height)
        for index in range(len(self.entries) - 1, -1, -1):
            count = len(self.rows(index).rows)
            if count >= need:
                return index, count - need
            need -= count
        return 0, 0

    def _moved(self, place: Place, step: int) -> Place:
        """Return the place `step` rows further, at most the start of the last page."""
        index, row = min(place[0], len(self.entries) - 1), place[1] + step
        while row < 0 < index:
            index -= 1
            row += len(self.rows(index).rows)
        while index < len(self.entries) - 1 and row >= len(self.rows(index).rows):
            row -= len(self.rows(index).rows)
            index += 1
        row = max(0, min(row, len(self.rows(index).rows) - 1))
        return min((index, row), self._last_page())

    def _show(self, place: Place) -> None:
        """Make a place the first visible row; on the last page, follow the end again."""
        if self.entries:
            last = self._last_page()
            self.at = self._moved(place, 0) if place[0] < len(self.entries) else last
            self.follows, self._is_at_hit = self.at == last, False
            self.redraw()

    def move(self, step: int) -> None:
        if self.entries:
            self._show(self._moved(self.at, step))

    def edge(self, side: int) -> None:
        self._show((0, 0) if side < 0 else (len(self.entries), 0))

    def jump(self, step: int) -> None:
        """Show the start of the next step; backwards, of this step, or of the previous one."""
        if not self.entries:
            return
        steps = [entry.step for entry in self.entries]
        here = steps[self.at[0]]
        if step > 0:
            self._show((bisect.bisect_right(steps, here), 0))
            return
        first = bisect.bisect_left(steps, here)
        self._show((first if (first, 0) < self.at else bisect.bisect_left(
            steps, steps[max(0, first - 1)]), 0))

    def find(self, step: int) -> bool:
        """Show the next or previous match, wrapping around at the ends; return False for none."""
        if not self.hits:
            return False
        self._hit = place = self._next_hit(step)
        self.at = self._moved(place, -(self.body_height // 3))
        self.follows, self._is_at_hit = False, True
        self.redraw()
        return True

    def _next_hit(self, step: int) -> Place:
        if self._hit is not None and self._is_at_hit:
            here = self._hit
        elif step > 0:
            here = (self.at[0], self.at[1] - 1)
        else:
            here = (len(self.entries), 0) if self.follows else self.at
        order: Sequence[int] = self.hits if step > 0 else self.hits[::-1]
        for index in order:
            if index != here[0] and (index > here[0]) != (step > 0):
                continue
            rows = [row for row in self.rows(index).hits()
                    if index != here[0] or (row > here[1] if step > 0 else row < here[1])]
            if rows:
                return index, rows[0 if step > 0 else -1]
        index = order[0]
        return index, self.rows(index).hits()[0 if step > 0 else -1]


Head = tuple[AttemptRef, int, SlotRow | None, str, str]
"""An attempt, the number of its slot's newest one, the slot if that one is shown, how far an older
attempt came, and the hypothesis.
"""


class TranscriptHead(ContentPane[Head | None], can_focus=False):
    """The two lines above a transcript: its attempt, and what happens in the slot now."""

    DEFAULT_CSS = "TranscriptHead { height: 2; }"
    content: Head | None = None

    def compose_lines(self, width: int) -> list[Line]:
        if self.content is None:
            return []
        attempt, newest, row, came, hypothesis = self.content
        first: list[Span] = [(f" {attempt.slot}", "bold"),
                             (f"  round {attempt.round}, attempt {attempt.number}", "plain")]
        if newest > attempt.number:
            first.append((f" of {newest}: }} shows the next", "accent"))
        if row is not None:
            stage = f"  {row.slot.stage} {row.age}".rstrip()
            first += [(stage, "good bold" if row.slot.progress != 1.0 else "bold"),
                      (f"  {phrases.slot(row.slot, row.elapsed)}", "plain")]
        else:
            first.append((f"  {came}", "plain"))
        return [tuple(first), ((f" {hypothesis}", "dim"),)]
