"""A model's review of a candidate, as its event records it: advice for the person who decides."""

from __future__ import annotations

import msgspec

from engine.journal.read import Reader

KIND = "patch-review"
"""The kind of the event with a review."""


class PatchReview(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of a review's event; without `lines`, `note` says why there is none."""

    candidate: str
    model: str
    lines: tuple[str, ...] = ()
    concerns: str = ""
    """The review's last line: its most serious concern in a sentence, or `none`."""
    note: str = ""

    @property
    def brief(self) -> str:
        """The line that a person reads before deciding."""
        return f"concerns of {self.model} (advisory): {self.concerns}" \
            if self.lines else f"{self.model} has not reviewed it: {self.note}"


def of_candidate(reader: Reader, campaign: str, candidate: str) -> PatchReview | None:
    """Return the newest review of a candidate, None if none was asked for."""
    for event in reversed(reader.events_of(campaign, KIND)):
        if event.ref == candidate:
            return event.decoded(PatchReview)
    return None
