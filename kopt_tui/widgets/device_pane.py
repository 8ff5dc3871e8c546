"""Devices: the state of each, who uses it, and since when a silent one does not answer."""

from __future__ import annotations

from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import DeviceLine, DeviceSnapshot
from kopt_tui.widgets.list_pane import ListPane
from kopt_tui.widgets.pane import ContentPane, fit
from kopt_tui.widgets.tones import Line, Span


def _trouble_spans(device: DeviceLine) -> list[Span]:
    silent = device.silent_since
    spans = [] if silent is None else [(f"✗ silent since {phrases.clock(silent)}", "bad")]
    return [*spans, (f"! {device.trouble}", "warn")] if device.trouble else spans


class DevicePane(ContentPane[tuple[DeviceSnapshot, str]]):
    """The device whose id `content` names, or all devices if none has that id."""

    TITLE = "device"
    content: tuple[DeviceSnapshot, str] = DeviceSnapshot(), ""
    one_fact_per_line = False

    def compose_lines(self, width: int) -> list[Line]:
        snapshot, name = self.content
        shown = [device for device in snapshot.devices if device.id == name] or snapshot.devices
        lines: list[Line] = []
        for device in shown:
            lines.append(((f" {device.id} ", "bold"), (device.name, "plain")))
            lines += [((f"   {text}", tone),) for text, tone in _trouble_spans(device)]
            if self.one_fact_per_line:
                lines += [((f"   {fit(name, 12)} ", "dim"), (value, "plain"))
                          for name, value in device.facts]
            else:
                facts = [f"{name} {value}" for name, value in device.facts]
                lines.append((("   " + "  ".join(facts), "plain"),))
            if device.owner:
                lines.append(((f"   {device.owner}", "info"),))
        if snapshot.problem:
            lines.append(((f" ! {snapshot.problem}", "warn"),))
        return lines or [((" querying the devices", "dim"),)]


class DeviceTable(ListPane[DeviceLine]):
    """All devices of this machine."""

    TITLE = "devices"
    EMPTY = "querying the devices of this machine"

    def key(self, item: DeviceLine) -> str:
        return item.id

    def row(self, item: DeviceLine, width: int) -> Line:
        facts = "  ".join(f"{name} {value}" for name, value in item.facts)
        owner = [(f"  {item.owner}", "info")] if item.owner else []
        return ((f"{fit(item.id, 8)} ", "bold"),
                (fit(item.name, 30 if width > 110 else 16), "plain"),
                *((f"  {text}", tone) for text, tone in _trouble_spans(item)[:1]),
                (f"  {facts}", "plain"), *owner)
