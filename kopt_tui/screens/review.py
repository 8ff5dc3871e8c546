"""The Review screen: the candidates of all campaigns that wait for approval."""

from __future__ import annotations

from kopt_tui.screens.actions import NO_DECISION, CandidateActions
from kopt_tui.screens.base import Body
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import Focus, Snapshot, WaitingRow
from kopt_tui.widgets.candidate_pane import CandidatePane
from kopt_tui.widgets.list_pane import ListPane
from kopt_tui.widgets.pane import fit, fit_name
from kopt_tui.widgets.tones import Line


class WaitingTable(ListPane[WaitingRow]):
    """One line per waiting candidate."""

    TITLE = "waiting for you"
    EMPTY = "no candidate waits for approval"

    def key(self, item: WaitingRow) -> str:
        return f"{item.candidate.campaign}/{item.candidate.id}"

    def row(self, item: WaitingRow, width: int) -> Line:
        candidate = item.candidate
        campaign = 32 if width >= 110 else 20
        return ((f"{fit(phrases.short(candidate.id), 8)} ", "bold"),
                (f"{fit(item.speedup, 22)} ", "plain"),
                (f"{fit_name(candidate.campaign, campaign)} ", "plain"),
                (f"{fit(f'round {candidate.round} {candidate.slot}', 12)} ", "dim"),
                *(((f"{item.obstacle}; ", "warn"),) if item.obstacle else ()),
                (item.doubts or phrases.unprefixed(item.why) or candidate.hypothesis, "accent"))


class ReviewScreen(CandidateActions):
    """The list, and the facts of the candidate under the cursor."""

    SCOPE = "review"
    CSS = "ReviewScreen WaitingTable { height: auto; min-height: 3; max-height: 40%; }"

    def body(self) -> Body:
        self.table, self.facts = WaitingTable(), CandidatePane()
        return [self.table, self.facts]

    def draw(self, snapshot: Snapshot) -> None:
        self.table.set_items(snapshot.waiting)
        view, row = snapshot.candidate, self.table.current
        self.facts.EMPTY = "reading the journal" if row else ""
        if row is None:
            self.facts.set_content(None)
        elif view and view.candidate and view.candidate.id == row.candidate.id:
            self.facts.set_content(view)
        else:
            self.facts.redraw()
            self.refocus_feed()

    def focus_of_feed(self) -> Focus:
        row = self.table.current if self.is_mounted else None
        return Focus(row.candidate.campaign, row.candidate.id) if row else super().focus_of_feed()

    def labels(self) -> dict[str, str]:
        return {} if self.dashboard.snapshot.waiting else \
            NO_DECISION | {"open": "", "transcript": ""}

    def on_list_pane_moved(self) -> None:
        self.refocus_feed()

    def action_open(self) -> None:
        row = self.table.current
        if row is not None:
            self.dashboard.open_candidate(row.candidate.campaign, row.candidate.id)

    def action_transcript(self) -> None:
        row = self.table.current
        if row is not None:
            self.dashboard.open_transcript(row.candidate.campaign, candidate=row.candidate.id)

    def chosen_candidate(self) -> tuple[str, WaitingRow | None]:
        row = self.table.current
        return (row.candidate.id, row) if row else ("", None)
