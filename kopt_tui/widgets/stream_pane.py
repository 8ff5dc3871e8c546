"""The verdicts of a campaign, newest first: outcome, speedup with interval, slot, reason."""

from __future__ import annotations

from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import StreamLine
from kopt_tui.widgets.list_pane import ListPane
from kopt_tui.widgets.pane import fit
from kopt_tui.widgets.tones import Line


class StreamPane(ListPane[StreamLine]):
    """One line per verdict; the cursor stays on the newest until it is moved."""

    TITLE = "verdicts"
    EMPTY = "no verdict yet"
    FOLLOWS = True

    def key(self, item: StreamLine) -> str:
        return item.key

    def row(self, item: StreamLine, width: int) -> Line:
        wide = width >= 96
        at = phrases.clock(item.at) if wide else phrases.clock(item.at)[:5]
        parts = [
            (f"{at} ", "dim"),
            (f"{fit(phrases.signed(item.outcome), 12)} ", phrases.tone(item.outcome)),
            (f"{fit(item.speedup, 18)} ", "plain"),
            (f"{fit(item.slot, 9)} ", "plain"),
        ]
        if wide:
            parts.append((f"{fit(phrases.short(item.candidate), 8)} ", "plain"))
        reason = phrases.unprefixed(item.reason)
        parts.append((reason or item.hypothesis, "plain" if reason else "dim"))
        return tuple(parts)
