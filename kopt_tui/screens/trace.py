"""The Trace screen: what limits the best kernel of a campaign, with unclipped texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget

from kopt_tui.screens.base import KoptScreen, bindings
from kopt_tui.snapshot.snapshot import Snapshot
from kopt_tui.widgets.about_pane import HeadPane
from kopt_tui.widgets.bottleneck_pane import BottleneckPane
from kopt_tui.widgets.keys import Scope


class TraceScreen(KoptScreen):
    """The bottlenecks and their advice."""

    SCOPE: ClassVar[Scope] = "trace"
    MODE = "trace"
    BINDINGS = bindings(SCOPE)

    def body(self) -> Iterable[Widget]:
        self.head, self.bottlenecks = HeadPane(), BottleneckPane()
        self.bottlenecks.wraps = True
        return [self.head, self.bottlenecks]

    def draw(self, snapshot: Snapshot) -> None:
        view = snapshot.view
        if view is not None and view.row.id == self.dashboard.campaign:
            self.head.set_head(view.row, ())
            self.bottlenecks.set_bottlenecks(view.bottlenecks)
