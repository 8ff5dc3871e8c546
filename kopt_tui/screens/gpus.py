"""The GPUs screen: every device of this machine, who uses it, and which does not answer."""

from __future__ import annotations

from kopt_tui.screens.base import Body, KoptScreen
from kopt_tui.snapshot.snapshot import DeviceSnapshot, Snapshot
from kopt_tui.widgets.device_pane import DevicePane, DeviceTable


class GpusScreen(KoptScreen):
    """The list, and all facts of the device under the cursor."""

    SCOPE = "gpus"

    def body(self) -> Body:
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
        self.facts.set_content((devices, row.id if row else ""))

    def on_list_pane_moved(self) -> None:
        self.draw_devices(self.dashboard.devices)
