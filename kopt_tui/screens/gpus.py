"""GPUs: every device of this machine, who computes on it, and which one went silent."""

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
        self.facts.can_focus, self.facts.whole = False, True
        return [self.table, self.facts]

    def draw(self, snapshot: Snapshot) -> None:
        """Devices come from the sampler, not from the journal."""

    def wants_devices(self, snapshot: Snapshot) -> bool:
        return True

    def draw_devices(self, seen: DeviceSnapshot) -> None:
        self.table.note = seen.problem
        self.table.set_items(seen.devices)
        self.table.redraw()
        row = self.table.current
        self.facts.set_devices(seen, row.id if row else "")

    def on_list_pane_moved(self) -> None:
        self.draw_devices(self.dashboard.devices)
