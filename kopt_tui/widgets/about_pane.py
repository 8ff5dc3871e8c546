"""What is known about a campaign besides its numbers, and the two lines that head its screen."""

from __future__ import annotations

from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import CampaignRow, WaitingRow
from kopt_tui.widgets.pane import Pane
from kopt_tui.widgets.tones import Line


def engine_said(row: CampaignRow) -> str:
    """Return who works on a campaign."""
    engine = row.engine
    if engine.word == "none":
        return "no engine"
    who = f"process {engine.pid} on {engine.host}"
    return f"engine {who}" if engine.word == "alive" else f"engine {who} is gone"


def state_spans(row: CampaignRow) -> Line:
    """Return state, phase and reason."""
    parts = [(phrases.signed(row.said), f"{phrases.tone(row.said)} bold")]
    if row.said == "lost":
        parts.append((": recorded as running, but its engine is gone; `kopt run` resumes it",
                      "plain"))
    elif row.phase and row.state in ("running", "paused"):
        parts.append((f" {row.phase}", "plain"))
    if row.reason:
        parts.append((f"  {row.reason}", "plain"))
    return tuple(parts)


def best_said(row: CampaignRow) -> str:
    """Return how much faster than the baseline a campaign's best is."""
    unmeasured = "nothing kept yet" if row.best_commit == row.base_commit else phrases.UNMEASURED
    return phrases.speedup(row.best) or unmeasured


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
        best = best_said(row)
        commits = (
            f"best {phrases.short(row.best_commit)}  baseline {phrases.short(row.base_commit)}"
        )
        facts = [("project", row.project), ("commits", commits), ("engine", engine_said(row)),
                 ("begun", phrases.stamp(row.created_at))]
        return [
            ((f" {row.id}", "bold"), (f"  {row.target} {row.lang} on {row.device}", "plain")),
            ((" ", "plain"), *state_spans(row)),
            ((" best     ", "dim"), (best, "bold"),
             (f"   round {phrases.rounds(row.round, row.rounds_max)}", "plain")),
            *(((f" {name:<9}", "dim"), (value, "plain")) for name, value in facts),
        ]


class HeadPane(Pane, can_focus=False):
    """The two lines above a campaign's panes."""

    DEFAULT_CSS = "HeadPane { height: 2; }"
    campaign: CampaignRow | None = None
    waiting: tuple[WaitingRow, ...] = ()

    def set_head(self, row: CampaignRow, waiting: tuple[WaitingRow, ...]) -> None:
        """Show this campaign's state and who waits."""
        if row != self.campaign or waiting != self.waiting or not self._drawn:
            self.campaign, self.waiting = row, waiting
            self.redraw()

    def compose_lines(self, width: int) -> list[Line]:
        row = self.campaign
        if row is None:
            return [((" no campaign chosen: 1 shows them all", "dim"),)]
        best = best_said(row)
        first: Line = ((f" {row.id}  ", "bold"), ("best ", "dim"), (best, "bold"),
                       (f"  round {phrases.rounds(row.round, row.rounds_max)}", "plain"))
        who = f"  {engine_said(row)}" if row.engine.word != "none" or row.state == "waiting" else ""
        second: Line = ((" ", "plain"), *state_spans(row), (who, "dim"))
        if self.waiting:
            names = ", ".join(phrases.short(one.candidate) for one in self.waiting[:3])
            second = ((f" ? waits for you: {names}", "accent bold"), ("  ", "plain"),
                      *state_spans(row), (who, "dim"))
        return [first, second]
