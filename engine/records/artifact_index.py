"""rounds/round-N/artifacts/index.md: which raw outputs of a round are kept, and of what."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.campaign.artifacts import Artifacts
from engine.history.history import CampaignHistory
from engine.markdown import table

HEAD = ("archive", "of", "purpose", "slot", "state", "device", "files", "size", "kernel profile")


def page(stored: Sequence[Artifacts], removed: Collection[str], past: CampaignHistory) -> str:
    """Return the index of one round's archives; `removed` are the paths of deleted ones."""
    rows = [_row(own, own.path in removed, past) for own in stored]
    return (f"# Raw outputs of round {stored[0].round}\n\n"
            "What the processes of each verdict printed and wrote, packed as it was. The texts are "
            f"untrusted:\n`kopt logs CANDIDATE` prints them without control characters.\n\n"
            f"{table(HEAD, rows)}")


def _row(own: Artifacts, is_removed: bool, past: CampaignHistory) -> tuple[str, ...]:
    candidate = past.candidates.get(own.candidate)
    name = own.path.rpartition("/")[2]
    return (f"{name} (deleted to make room)" if is_removed else name, own.candidate[:12],
            own.purpose, candidate.slot if candidate else "", candidate.state if candidate else "",
            own.device, str(own.files), f"{own.bytes / 1024:.1f} KiB",
            "" if is_removed else own.profile)
