"""The Campaign screen: one campaign live, from its slots to its log."""

from __future__ import annotations

from textual.containers import Container

from engine.journal.records import Slot
from engine.task import AGENT_BACKENDS
from kopt_tui.screens.actions import NO_DECISION, CampaignActions, CandidateActions
from kopt_tui.screens.base import NO_CAMPAIGN, Body
from kopt_tui.snapshot.snapshot import (
    AttemptRef,
    CampaignRow,
    DeviceSnapshot,
    Snapshot,
    WaitingRow,
)
from kopt_tui.widgets.about_pane import HeadPane
from kopt_tui.widgets.bottleneck_pane import BottleneckPane
from kopt_tui.widgets.chart_pane import ChartPane
from kopt_tui.widgets.classes_pane import ClassesPane
from kopt_tui.widgets.device_pane import DevicePane
from kopt_tui.widgets.log_pane import LogPane
from kopt_tui.widgets.pane import Column
from kopt_tui.widgets.slots_pane import SlotsPane, StreamPane

WITHOUT_CANDIDATE = ("baseline", "headline", "e2e", "reference")
"""Purposes of verdicts that are about a commit instead of a candidate."""


class CampaignScreen(CampaignActions, CandidateActions):
    """Slots and verdicts; beside or below them classes, bottlenecks, chart, log and device."""

    SCOPE = "campaign"
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

    def body(self) -> Body:
        self.head = HeadPane()
        self.slots, self.stream = SlotsPane(), StreamPane()
        self.chart, self.classes_pane = ChartPane(), ClassesPane()
        self.bottlenecks, self.device = BottleneckPane(), DevicePane()
        self.log_pane = LogPane()
        self.pane_layout.deck = (self.chart, self.classes_pane, self.bottlenecks, self.log_pane,
                                 self.device)
        return [self.head, Container(
            Column(self.slots, self.stream, self.log_pane, id="main"),
            Column(self.chart, self.classes_pane, self.bottlenecks, self.device, id="side"),
            id="panes")]

    def draw(self, snapshot: Snapshot) -> None:
        view = snapshot.view
        if view is None or view.row.id != self.dashboard.campaign:
            if snapshot.row(self.dashboard.campaign) is None:
                self.head.EMPTY = NO_CAMPAIGN
                self.head.redraw()
            return
        self.head.set_content((view.row, self._waiting(snapshot)))
        self.slots.note = view.plan
        self.slots.set_items(view.slots)
        self.slots.redraw()
        self.stream.set_items(view.verdicts)
        self.chart.set_content(view.chart)
        if view.classes != self.classes_pane.content:
            self.classes_pane.set_content(view.classes)
            self.classes_pane.refresh(layout=True)
        self.bottlenecks.show(view.bottlenecks, view.routing)
        self.log_pane.set_content(view.log)
        self.draw_devices(self.dashboard.devices)

    def labels(self) -> dict[str, str]:
        waiting = self._waiting(self.dashboard.snapshot)
        agents = self._slot_of_agent() if self.pane is self.slots else any(
            row.slot.backend in AGENT_BACKENDS for row in self.slots.items)
        return super().labels() | ({} if waiting else NO_DECISION) \
            | ({} if agents else {"transcript": ""})

    def on_list_pane_moved(self) -> None:
        self.offer_keys()

    def draw_devices(self, devices: DeviceSnapshot) -> None:
        row = self.chosen_campaign()
        self.device.set_content((devices, row.device if row else ""))

    def shows_devices(self, snapshot: Snapshot) -> bool:
        view = snapshot.view
        return self.device.display and view is not None and (
            view.row.engine.word == "alive" or not self.device.content[0].devices)

    def action_open(self) -> None:
        name = self._candidate_under_cursor()
        if name:
            self.dashboard.open_candidate(self.dashboard.campaign, name)
        elif self._slot_of_agent() is not None:
            self.action_transcript()
        else:
            self.keybar.say("this line has no candidate to open")

    def action_transcript(self) -> None:
        slot, name = self._slot_of_agent(), self._candidate_under_cursor()
        if slot is not None:
            self.dashboard.open_transcript(slot.campaign, attempt=AttemptRef(
                campaign=slot.campaign, round=slot.round, slot=slot.slot))
        elif name and self.pane is not self.slots:
            self.dashboard.open_transcript(self.dashboard.campaign, candidate=name)
        else:
            self.keybar.say("no agent works on this line")

    def _slot_of_agent(self) -> Slot | None:
        """Return the slot under the cursor if a model or a command works in it."""
        row = self.slots.current if self.pane is self.slots else None
        return row.slot if row is not None and row.slot.backend in AGENT_BACKENDS else None

    def chosen_campaign(self) -> CampaignRow | None:
        return self.dashboard.snapshot.row(self.dashboard.campaign)

    def chosen_candidate(self) -> tuple[str, WaitingRow | None]:
        """Return the candidate under the cursor if it waits, else the only one that does."""
        waiting = self._waiting(self.dashboard.snapshot)
        name = self._candidate_under_cursor()
        chosen = next((row for row in waiting if row.candidate.id == name), None)
        if chosen is None and len(waiting) == 1:
            return waiting[0].candidate.id, waiting[0]
        return name, chosen

    def _candidate_under_cursor(self) -> str:
        if self.pane is self.slots and self.slots.current:
            return self.slots.current.slot.candidate
        line = self.stream.current
        return line.candidate if line and line.purpose not in WITHOUT_CANDIDATE else ""

    def _waiting(self, snapshot: Snapshot) -> tuple[WaitingRow, ...]:
        return tuple(row for row in snapshot.waiting
                     if row.candidate.campaign == self.dashboard.campaign)
