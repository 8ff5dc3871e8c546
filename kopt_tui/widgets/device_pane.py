"""Devices: how each is, who computes on it, and since when one is silent."""

from __future__ import annotations

from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import DeviceLine, DeviceSnapshot
from kopt_tui.widgets.list_pane import ListPane
from kopt_tui.widgets.pane import Pane, fit
from kopt_tui.widgets.tones import Line


def device_spans(one: DeviceLine, width: int) -> Line:
    """Return one device as a line."""
    facts = "  ".join(f"{name} {value}" for name, value in one.facts)
    parts = [(f"{fit(one.id, 8)} ", "bold"), (fit(one.name, 30 if width > 110 else 16), "plain")]
    if one.silent_since is not None:
        parts.append((f"  ✗ silent since {phrases.clock(one.silent_since)}", "bad"))
    elif one.trouble:
        parts.append((f"  ! {one.trouble}", "warn"))
    parts.append((f"  {facts}", "plain"))
    if one.owner:
        parts.append((f"  {one.owner}", "info"))
    return tuple(parts)


class DevicePane(Pane):
    """The devices of one campaign, in short."""

    TITLE = "device"
    seen = DeviceSnapshot()
    only = ""
    whole = False
    """One fact per line."""

    def set_devices(self, seen: DeviceSnapshot, only: str = "") -> None:
        """Show these devices, or the one that a campaign names."""
        if seen != self.seen or only != self.only or not self._drawn:
            self.seen, self.only = seen, only
            self.redraw()

    def compose_lines(self, width: int) -> list[Line]:
        mine = [one for one in self.seen.devices if one.id == self.only] or self.seen.devices
        lines: list[Line] = []
        for one in mine:
            lines.append(((f" {one.id} ", "bold"), (one.name, "plain")))
            if one.silent_since is not None:
                lines.append(((f"   ✗ silent since {phrases.clock(one.silent_since)}", "bad"),))
            if one.trouble:
                lines.append(((f"   ! {one.trouble}", "warn"),))
            if self.whole:
                lines += [((f"   {fit(name, 12)} ", "dim"), (value, "plain"))
                          for name, value in one.facts]
            else:
                facts = [f"{name} {value}" for name, value in one.facts]
                lines.append((("   " + "  ".join(facts), "plain"),))
            if one.owner:
                lines.append(((f"   {one.owner}", "info"),))
        if self.seen.problem:
            lines.append(((f" ! {self.seen.problem}", "warn"),))
        return lines or [((" asking the machine", "dim"),)]


class DeviceTable(ListPane[DeviceLine]):
    """All devices of this machine."""

    TITLE = "devices"
    EMPTY = "asking the machine for its devices"

    def key(self, item: DeviceLine) -> str:
        return item.id

    def row(self, item: DeviceLine, width: int) -> Line:
        return device_spans(item, width)
