"""The Trace screen: what limits the best kernel of a campaign, with unclipped texts."""

from __future__ import annotations

from kopt_tui.screens.base import NO_CAMPAIGN, Body, KoptScreen
from kopt_tui.snapshot.snapshot import Snapshot
from kopt_tui.widgets.about_pane import HeadPane
from kopt_tui.widgets.bottleneck_pane import BottleneckPane


class TraceScreen(KoptScreen):
    """The bottlenecks and their advice."""

    SCOPE = "trace"

    def body(self) -> Body:
        self.head, self.bottlenecks = HeadPane(), BottleneckPane()
        self.bottlenecks.wraps = True
        return [self.head, self.bottlenecks]

    def draw(self, snapshot: Snapshot) -> None:
        view = snapshot.view
        if view is not None and view.row.id == self.dashboard.campaign:
            self.head.set_content((view.row, ()))
            self.bottlenecks.show(view.bottlenecks, view.routing)
        elif snapshot.row(self.dashboard.campaign) is None:
            self.head.EMPTY = NO_CAMPAIGN
            self.head.redraw()
