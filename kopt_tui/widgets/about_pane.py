"""Facts about one campaign: beside the table of campaigns, and at the head of its own screen."""

from __future__ import annotations

from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import CampaignRow, WaitingRow
from kopt_tui.widgets.pane import ContentPane
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
        parts.append((f": {phrases.engine_gone(row.campaign)}", "plain"))
    elif row.status == "judging" and row.campaign.state in phrases.CONTINUABLE:
        parts.append((f": {phrases.only_answers(row.campaign)}", "plain"))
    elif row.campaign.phase and row.status in (
            "running", "judging", "paused"):
        parts.append((f" {phrases.work(row.campaign)}", "plain"))
    if row.phase_age:
        parts.append((f" for {row.phase_age}", "dim"))
    if row.pauses_soon:
        parts.append((", pauses after this round", "warn"))
    if row.campaign.outcome:
        parts.append((f"  {row.campaign.outcome}", "plain"))
    return tuple(parts)


def best_spans(row: CampaignRow, gap: str) -> Line:
    """Return the best and, after a gap, the provisional best, the round and the cost of models.

    A narrow terminal cuts off the last ones first.
    """
    place = row.campaign.iteration_place
    facts = (row.provisional, place if row.campaign.round == 1 else f"iteration {place}",
             row.cost and f"models {row.cost}")
    is_over = row.campaign.state in phrases.ENDED and row.campaign.state != "waiting"
    nothing = "nothing kept" if is_over else "nothing kept yet"
    return ((phrases.best(row.campaign) or nothing, "bold"),
            (gap + "  ".join(filter(None, facts)), "plain"))


class AboutPane(ContentPane[CampaignRow | None]):
    """The campaign under the cursor."""

    TITLE = "about"
    content: CampaignRow | None = None

    def compose_lines(self, width: int) -> list[Line]:
        row = self.content
        if row is None:
            return []
        campaign = row.campaign
        commits = (f"best {phrases.short(campaign.best_commit)}  "
                   f"baseline {phrases.short(campaign.base_commit)}")
        engine = ("result", phrases.result(campaign)) if row.engine.word == "none" and \
            phrases.result(campaign) else ("engine", engine_text(row))
        facts = [("project", campaign.project), ("commits", commits), engine,
                 ("started", phrases.stamp(campaign.created_at))]
        return [
            ((f" {row.id}", "bold"), (f"  {row.target} on {row.device}", "plain")),
            ((" ", "plain"), *state_spans(row)),
            ((" best     ", "dim"), *best_spans(row, "   ")),
            *(((f" {name:<9}", "dim"), (value, "plain")) for name, value in facts),
        ]


Head = tuple[CampaignRow, tuple[WaitingRow, ...]]
"""A campaign and its candidates that wait for approval."""


class HeadPane(ContentPane[Head | None], can_focus=False):
    """The two lines above a campaign's panes: its state, and its candidates that wait."""

    DEFAULT_CSS = "HeadPane { height: 2; }"
    EMPTY = "reading the journal"
    content: Head | None = None

    def compose_lines(self, width: int) -> list[Line]:
        if self.content is None:
            return [((f" {self.EMPTY}", "dim"),)]
        row, waiting = self.content
        first: Line = ((f" {row.id}  ", "bold"), ("best ", "dim"), *best_spans(row, "  "))
        shows_engine = row.engine.word != "none" or row.campaign.state == "waiting"
        second: Line = ((" ", "plain"), *state_spans(row),
                        (f"  {engine_text(row)}" if shows_engine else "", "dim"))
        if waiting:
            names = ", ".join(phrases.short(entry.candidate.id) for entry in waiting[:3])
            second = ((f" ? waits for you: {names} ", "accent bold"), *second)
        return [first, second]
