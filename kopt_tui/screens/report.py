"""Report: the campaign as `kopt report` writes it, made anew once a round."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget

from kopt_tui.screens.base import KoptScreen, bindings
from kopt_tui.snapshot.snapshot import Focus, Snapshot
from kopt_tui.widgets.keys import Scope
from kopt_tui.widgets.report_pane import ReportPane


class ReportScreen(KoptScreen):
    """One pane with the whole report."""

    SCOPE: ClassVar[Scope] = "report"
    MODE = "report"
    BINDINGS = bindings(SCOPE)

    def body(self) -> Iterable[Widget]:
        self.report = ReportPane()
        return [self.report]

    def draw(self, snapshot: Snapshot) -> None:
        if snapshot.report:
            self.report.set_text(snapshot.report, self.dashboard.campaign)

    def wants(self) -> Focus:
        return Focus(campaign=self.dashboard.campaign, report=True)
