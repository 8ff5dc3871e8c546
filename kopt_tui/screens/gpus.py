"""The GPUs screen: every device of this machine, who uses it, and which does not answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget

from kopt_tui.screens.base import KoptScreen, bindings
from kopt_tui.snapshot.snapshot import DeviceSnapshot, Snapshot
from kopt_tui.widgets.device_pane import DevicePane, DeviceTable
from kopt_tui.widgets.keys import Scope


class GpusScreen(KoptScreen):
    """The list, and all facts of the device under the cursor."""

    SCOPE: ClassVar[Scope] = "gpus"
    MODE = "gpus"
    BINDINGS = bindings(SCOPE)

    def body(self) -> Iterable[Widget]:
        self.table, self.facts = DeviceTable(), DevicePane()
        self.facts.can_focus, self.facts.one_fact_per_line = False, True
        return [self.table, self.facts]

    def draw(self, snapshot: Snapshot) -> None:
        """Draw nothing: devices come from the sampler, not from the journal."""

    def shows_devices(self, snapshot: Snapshot) -> bool:
        return True

    def draw_devices(self, devices: DeviceSnapshot) -> None:
        self.table.note = devices.problem
        self.table.set_items(devices.devices)
        self.table.redraw()
        row = self.table.current
        self.facts.set_devices(devices, row.id if row else "")

    def on_list_pane_moved(self) -> None:
        self.draw_devices(self.dashboard.devices)
