"""A best that was kept after the campaign ended because nothing was left to try."""

from __future__ import annotations

import msgspec

from engine.journal.read import Reader
from engine.journal.records import Campaign

NOTHING_LEFT = "nothing left to try"
"""How the reason of such an end begins."""


class _StateChange(msgspec.Struct, frozen=True):
    state: str = ""


def is_untried(reader: Reader, campaign: Campaign) -> bool:
    """Return whether rounds are left that could go on from a best that is newer than the end.

    A person's approval after the end may have kept it.
    """
    if campaign.state not in ("waiting", "finished") or \
            not campaign.reason.startswith(NOTHING_LEFT) or \
            campaign.best_commit == campaign.base_commit or \
            campaign.round >= (campaign.rounds_max or campaign.round + 1):
        return False
    began = next((event.seq for event in reversed(reader.events_of(campaign.id, "campaign.state"))
                  if msgspec.json.decode(event.payload, type=_StateChange).state == "running"), 0)
    ended_at = next((event.ref for event in reader.events_of(campaign.id, "campaign.stop")
                     if event.seq > began), campaign.best_commit)
    return ended_at != campaign.best_commit
