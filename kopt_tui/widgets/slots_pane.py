"""The slots of a round: what each worker is doing now.

The parts that change often stand at the left in one tone, so that a change costs few bytes.
"""

from __future__ import annotations

from rich.cells import cell_len

from engine.journal.records import Slot
from kopt_tui.snapshot import phrases
from kopt_tui.widgets.list_pane import ListPane
from kopt_tui.widgets.pane import fit
from kopt_tui.widgets.tones import Line


class SlotsPane(ListPane[Slot]):
    """One line per worker."""

    TITLE = "slots"
    EMPTY = "no workers yet"

    def key(self, item: Slot) -> str:
        return item.slot

    def row(self, item: Slot, width: int) -> Line:
        names = min(14, max((cell_len(line.slot) for line in self.items), default=4))
        percent = "    " if item.progress is None else f"{min(1.0, item.progress) * 100:3.0f}%"
        live = f"{fit(item.slot, names)} {percent} {fit(item.stage, 10)} "
        if width < 96:
            room = 28 if width >= 72 else max(12, width - names - 17)
            live += f"{fit(phrases.unprefixed(item.detail), room)} "
            return ((live, "plain"), (item.hypothesis, "dim"))
        progress = phrases.bar(item.progress, 10)
        return ((live, "plain"), (f"{progress} ", "info"),
                (f"{fit(phrases.unprefixed(item.detail), 38)} ", "plain"),
                (f"{fit(item.backend, 8)} ", "dim"), (item.hypothesis, "dim"))
