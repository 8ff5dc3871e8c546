"""The lists of a campaign: what its workers do now, and its verdicts, newest first."""

from __future__ import annotations

from rich.cells import cell_len

from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import SlotRow, StreamLine
from kopt_tui.widgets.list_pane import ListPane
from kopt_tui.widgets.pane import fit
from kopt_tui.widgets.tones import Line


class SlotsPane(ListPane[SlotRow]):
    """One line per worker.

    What changes often is at the left and has one tone, so that a change costs few bytes.
    """

    TITLE = "slots"
    EMPTY = "no workers yet"

    def key(self, item: SlotRow) -> str:
        return item.slot.slot

    def row(self, item: SlotRow, width: int) -> Line:
        slot = item.slot
        names = min(14, max((cell_len(line.slot.slot) for line in self.items), default=4))
        percent = "    " if slot.progress is None else f"{min(1.0, slot.progress) * 100:3.0f}%"
        live = f"{fit(slot.slot, names)} {percent} {fit(slot.stage, 10)} {fit(item.age, 6)} "
        detail = phrases.slot(slot, item.elapsed)
        if slot.agent is not None:
            return ((f"{live}{fit(detail, 60)} ", "plain"), (slot.hypothesis, "dim")) \
                if width >= 96 else ((f"{live}{detail}", "plain"),)
        if width < 96:
            details = [phrases.slot(line.slot) for line in self.items if line.slot.agent is None]
            room = min(28 if width >= 72 else max(12, width - names - 24),
                       max(14, *(cell_len(text) for text in (*details, ""))))
            live += f"{fit(detail, room)} "
            return ((live, "plain"), (slot.hypothesis if width - cell_len(live) > 6 else "", "dim"))
        progress = phrases.bar(slot.progress, 10)
        return ((live, "plain"), (f"{progress} ", "info"),
                (f"{fit(detail, 38)} ", "plain"),
                (f"{fit(slot.backend, 8)} ", "dim"), (slot.hypothesis, "dim"))


class StreamPane(ListPane[StreamLine]):
    """One line per verdict; the cursor stays on the newest until it is moved."""

    TITLE = "verdicts"
    EMPTY = "no verdict yet"
    FOLLOWS = True

    def key(self, item: StreamLine) -> str:
        return item.key

    def row(self, item: StreamLine, width: int) -> Line:
        is_wide = width >= 96
        at = phrases.clock(item.at) if is_wide else phrases.clock(item.at)[:5]
        word, tone = phrases.ruled(item.outcome, item.reason)
        parts = [
            (f"{at} ", "dim"),
            (f"{fit(word, 13)} ", tone),
            (f"{fit(item.speedup, 22)} ", "plain"),
            (f"{fit(item.slot, 9)} ", "plain"),
        ]
        if is_wide:
            parts.append((f"{fit(phrases.short(item.candidate), 8)} ", "plain"))
        reason = phrases.unprefixed(item.reason)
        parts.append((reason or phrases.quoted(item.hypothesis), "plain" if reason else "dim"))
        return tuple(parts)
