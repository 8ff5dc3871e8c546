"""Facts about one campaign: beside the table of campaigns, and at the head of its own screen."""

from __future__ import annotations

from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import CampaignRow, WaitingRow
from kopt_tui.widgets.pane import Pane
from kopt_tui.widgets.tones import Line


def engine_text(row: CampaignRow) -> str:
    """Return which process runs a campaign."""
    engine = row.engine
    if engine.word == "none":
        return "no engine"
    process = f"process {engine.pid} on {engine.host}"
    return f"engine {process}" if engine.word == "alive" else f"engine {process} is gone"


def state_spans(row: CampaignRow) -> Line:
    """Return state, phase and reason."""
    parts = [(phrases.signed(row.status), f"{phrases.tone(row.status)} bold")]
    if row.status == "lost":
        parts.append((": its engine is gone; `kopt resume` continues the campaign", "plain"))
    elif row.phase and row.state in ("running", "paused"):
        parts.append((f" {row.phase}", "plain"))
    if row.reason:
        parts.append((f"  {row.reason}", "plain"))
    return tuple(parts)


def best_text(row: CampaignRow) -> str:
    """Return how much faster than the baseline a campaign's best is."""
    return phrases.best(row.best, row.best_commit, row.base_commit) or "nothing kept yet"


class AboutPane(Pane):
    """The campaign under the cursor."""

    TITLE = "about"
    campaign: CampaignRow | None = None

    def set_row(self, row: CampaignRow | None) -> None:
        """Show this campaign."""
        if row != self.campaign or not self._drawn:
            self.campaign = row
            self.redraw()

    def compose_lines(self, width: int) -> list[Line]:
        row = self.campaign
        if row is None:
            return []
        commits = (
            f"best {phrases.short(row.best_commit)}  baseline {phrases.short(row.base_commit)}")
        facts = [("project", row.project), ("commits", commits), ("engine", engine_text(row)),
                 ("started", phrases.stamp(row.created_at))]
        return [
            ((f" {row.id}", "bold"), (f"  {row.target} {row.lang} on {row.device}", "plain")),
            ((" ", "plain"), *state_spans(row)),
            ((" best     ", "dim"), (best_text(row), "bold"),
             (f"   round {phrases.rounds(row.round, row.rounds_max)}", "plain")),
            *(((f" {name:<9}", "dim"), (value, "plain")) for name, value in facts),
        ]


class HeadPane(Pane, can_focus=False):
    """The two lines above a campaign's panes."""

    DEFAULT_CSS = "HeadPane { height: 2; }"
    campaign: CampaignRow | None = None
    waiting: tuple[WaitingRow, ...] = ()

    def set_head(self, row: CampaignRow, waiting: tuple[WaitingRow, ...]) -> None:
        """Show this campaign's state and its candidates that wait for approval."""
        if row != self.campaign or waiting != self.waiting or not self._drawn:
            self.campaign, self.waiting = row, waiting
            self.redraw()

    def compose_lines(self, width: int) -> list[Line]:
        row = self.campaign
        if row is None:
            return [((" no campaign is chosen: press 1 for the list", "dim"),)]
        first: Line = ((f" {row.id}  ", "bold"), ("best ", "dim"), (best_text(row), "bold"),
                       (f"  round {phrases.rounds(row.round, row.rounds_max)}", "plain"))
        shows_engine = row.engine.word != "none" or row.state == "waiting"
        second: Line = ((" ", "plain"), *state_spans(row),
                        (f"  {engine_text(row)}" if shows_engine else "", "dim"))
        if self.waiting:
            names = ", ".join(phrases.short(entry.candidate) for entry in self.waiting[:3])
            second = ((f" ? waits for you: {names} ", "accent bold"), *second)
        return [first, second]
