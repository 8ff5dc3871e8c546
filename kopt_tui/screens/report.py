"""The Report screen: the report that `kopt report` prints, kept up to date."""

from __future__ import annotations

from kopt_tui.screens.base import NO_CAMPAIGN, Body, KoptScreen
from kopt_tui.snapshot.snapshot import Focus, Snapshot
from kopt_tui.widgets.report_pane import ReportPane


class ReportScreen(KoptScreen):
    """One pane with the report."""

    SCOPE = "report"

    def body(self) -> Body:
        self.report = ReportPane()
        return [self.report]

    def draw(self, snapshot: Snapshot) -> None:
        if snapshot.row(self.dashboard.campaign) is None:
            self.report.EMPTY = NO_CAMPAIGN
            self.report.redraw()
        elif snapshot.report:
            self.report.set_content((snapshot.report, self.dashboard.campaign))

    def focus_of_feed(self) -> Focus:
        return Focus(campaign=self.dashboard.campaign, report=True)
