"""Campaign: one campaign live, from its slots to its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.containers import Container
from textual.widget import Widget

from kopt_tui.screens.actions import CampaignActions, CandidateActions
from kopt_tui.screens.base import bindings
from kopt_tui.snapshot.snapshot import CampaignRow, DeviceSnapshot, Snapshot, WaitingRow
from kopt_tui.widgets.about_pane import HeadPane
from kopt_tui.widgets.bottleneck_pane import BottleneckPane
from kopt_tui.widgets.chart_pane import ChartPane
from kopt_tui.widgets.classes_pane import ClassesPane
from kopt_tui.widgets.column import Column
from kopt_tui.widgets.device_pane import DevicePane
from kopt_tui.widgets.keys import Scope
from kopt_tui.widgets.log_pane import LogPane
from kopt_tui.widgets.slots_pane import SlotsPane
from kopt_tui.widgets.stream_pane import StreamPane


class CampaignScreen(CampaignActions, CandidateActions):
    """Slots and verdicts; beside or below them classes, bottlenecks, chart, log and device."""

    SCOPE: ClassVar[Scope] = "campaign"
    MODE = "campaign"
    BINDINGS = bindings(SCOPE)
    CSS = """
    CampaignScreen #panes { layout: vertical; height: 1fr; }
    CampaignScreen SlotsPane { height: auto; max-height: 45%; min-height: 3; }
    CampaignScreen.-narrow #side { height: auto; }
    CampaignScreen.-narrow .deck { height: 8; }
    CampaignScreen.-wide #panes { layout: horizontal; }
    CampaignScreen.-wide #side { margin: 0 0 0 2; width: 46%; }
    CampaignScreen.-wide ChartPane { height: 1fr; max-height: 16; }
    CampaignScreen.-wide ClassesPane { height: auto; max-height: 14; }
    CampaignScreen.-wide LogPane { height: 40%; }
    CampaignScreen.-wide DevicePane { height: 6; }
    CampaignScreen.-zoomed #side, CampaignScreen.-zoomed #panes Pane {
        height: 1fr; width: 1fr; max-height: 100%; margin: 0;
    }
    """

    def body(self) -> Iterable[Widget]:
        self.head = HeadPane()
        self.slots, self.stream = SlotsPane(), StreamPane()
        self.chart, self.table, self.limits = ChartPane(), ClassesPane(), BottleneckPane()
        self.device, self.log_pane = DevicePane(), LogPane()
        self.deck = (self.chart, self.table, self.limits, self.log_pane, self.device)
        return [self.head, Container(
            Column(self.slots, self.stream, self.log_pane, id="main"),
            Column(self.chart, self.table, self.limits, self.device, id="side"), id="panes")]

    def draw(self, snapshot: Snapshot) -> None:
        view = snapshot.view
        if view is None or view.row.id != self.dashboard.campaign:
            return
        mine = tuple(one for one in snapshot.waiting if one.campaign == view.row.id)
        self.head.set_head(view.row, mine)
        grown = len(view.slots) != len(self.slots.items)
        self.slots.set_items(view.slots)
        if grown:
            self.slots.refresh(layout=True)
        self.stream.set_items(view.verdicts)
        self.chart.set_points(view.chart)
        if view.classes != self.table.table:
            self.table.set_table(view.classes)
            self.table.refresh(layout=True)
        self.limits.set_found(view.bottlenecks)
        self.log_pane.set_events(view.log)
        self.draw_devices(self.dashboard.devices)

    def draw_devices(self, seen: DeviceSnapshot) -> None:
        row = self.chosen_campaign()
        self.device.set_devices(seen, row.device if row else "")

    def wants_devices(self, snapshot: Snapshot) -> bool:
        view = snapshot.view
        return self.device.display and view is not None and (
            view.row.engine.word == "alive" or not self.device.seen.devices)

    def action_open(self) -> None:
        if self.pane is self.slots and self.slots.current:
            name = self.slots.current.candidate
        else:
            name = self.stream.current.candidate if self.stream.current else ""
        if name:
            self.dashboard.open_candidate(self.dashboard.campaign, name)
        else:
            self.keybar.say("no candidate here yet")

    def on_list_pane_opened(self) -> None:
        self.action_open()

    def chosen_campaign(self) -> CampaignRow | None:
        return self.dashboard.snapshot.row(self.dashboard.campaign)

    def chosen_candidate(self) -> tuple[str, WaitingRow | None]:
        """The candidate under the cursor if it waits, else the only one that does."""
        campaign = self.dashboard.campaign
        mine = [row for row in self.dashboard.snapshot.waiting if row.campaign == campaign]
        line = self.slots.current if self.pane is self.slots else self.stream.current
        name = line.candidate if line else ""
        chosen = next((one for one in mine if one.candidate == name), None)
        if chosen is None and len(mine) == 1:
            return mine[0].candidate, mine[0]
        return name, chosen
