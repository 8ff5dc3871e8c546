"""The Campaigns screen: one line per campaign, and facts about the one under the cursor."""

from __future__ import annotations

from textual.containers import Horizontal

from kopt_tui.screens.actions import CampaignActions
from kopt_tui.screens.base import Body
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import CampaignRow, Focus, Snapshot
from kopt_tui.widgets.about_pane import AboutPane
from kopt_tui.widgets.chart_pane import ChartPane
from kopt_tui.widgets.list_pane import ListPane
from kopt_tui.widgets.pane import fit, fit_name
from kopt_tui.widgets.tones import Line

CAMPAIGNS_CSS = """
CampaignsScreen #below { height: 9; }
CampaignsScreen.-narrow ChartPane { display: none; }
CampaignsScreen.-wide CampaignTable { height: auto; min-height: 6; max-height: 45%; }
CampaignsScreen.-wide #below { height: 1fr; }
"""
"""Part of the app's own style sheet, so that the first paint parses only one."""


class CampaignTable(ListPane[CampaignRow]):
    """All campaigns, newest activity first."""

    TITLE = "campaigns"
    EMPTY = "reading the journal"
    now = 0.0

    def key(self, item: CampaignRow) -> str:
        return item.id

    def _columns(self, width: int) -> dict[str, int]:
        """Return the columns and their widths in cells."""
        if width < 108:
            return {"state": 10, "campaign": max(11, width - 55), "iteration": 9, "best": 19,
                    "ask": 3, "last": 6, "trend": 0}
        return {"state": 10, "campaign": 34, "target": 22, "device": 12, "iteration": 11,
                "best": 22, "ask": 5, "last": 8, "trend": 20}

    def headings(self, width: int) -> Line:
        if not self.items:
            return ()
        names = (fit(name, size) for name, size in self._columns(width - 2).items())
        return ((" " + " ".join(names), "dim"),)

    def row(self, item: CampaignRow, width: int) -> Line:
        sizes = self._columns(width)
        texts = {
            "state": phrases.signed(item.status),
            "campaign": item.id,
            "target": item.target,
            "device": item.device,
            "iteration": item.campaign.iteration_place,
            "best": phrases.best_or_waiting(item.campaign, item.provisional),
            "ask": f"{item.waiting} ?" if item.waiting else "",
            "last": phrases.moment(item.campaign.updated_at, self.now),
            "trend": phrases.spark(item.trend, min(20, sizes["trend"])),
        }
        tones = {"state": phrases.tone(item.status), "ask": "accent bold", "last": "dim",
                 "best": "bold" if phrases.best(item.campaign) else "plain", "trend": "info"}
        return tuple(((fit_name if name == "campaign" else fit)(texts[name], size) + " ",
                      tones.get(name, "plain")) for name, size in sizes.items() if size)


class CampaignsScreen(CampaignActions):
    """The table and, below it, the campaign under the cursor."""

    SCOPE = "campaigns"

    def body(self) -> Body:
        self.table = CampaignTable()
        self.about = AboutPane()
        self.chart = ChartPane()
        self.about.can_focus = self.chart.can_focus = False
        return [self.table, Horizontal(self.about, self.chart, id="below")]

    def draw(self, snapshot: Snapshot) -> None:
        self.table.EMPTY = "no campaigns yet: `kopt demo` runs one, `kopt new` starts your own"
        self.table.now = snapshot.at
        self.table.set_items(snapshot.campaigns)
        self.table.redraw()
        view = snapshot.view
        row = self.table.current
        self.about.set_content(row)
        self.chart.set_content(view.chart if view and row and view.row.id == row.id else ())

    def focus_of_feed(self) -> Focus:
        row = self.table.current if self.is_mounted else None
        return Focus(campaign=row.id if row else self.dashboard.campaign)

    def on_list_pane_moved(self) -> None:
        self.about.set_content(self.table.current)
        self.refocus_feed()

    def action_open(self) -> None:
        row = self.table.current
        if row is not None:
            self.dashboard.open_campaign(row.id)

    def chosen_campaign(self) -> CampaignRow | None:
        return self.table.current
