"""The Report screen: the report that `kopt report` prints, written again after every round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget

from kopt_tui.screens.base import KoptScreen, bindings
from kopt_tui.snapshot.snapshot import Focus, Snapshot
from kopt_tui.widgets.keys import Scope
from kopt_tui.widgets.report_pane import ReportPane


class ReportScreen(KoptScreen):
    """One pane with the report."""

    SCOPE: ClassVar[Scope] = "report"
    MODE = "report"
    BINDINGS = bindings(SCOPE)

    def body(self) -> Iterable[Widget]:
        self.report = ReportPane()
        return [self.report]

    def draw(self, snapshot: Snapshot) -> None:
        if snapshot.report:
            self.report.set_text(snapshot.report, self.dashboard.campaign)

    def focus_of_feed(self) -> Focus:
        return Focus(campaign=self.dashboard.campaign, report=True)
