"""What the journal refuses."""

from __future__ import annotations

from harness.errors import Refused


class LeaseLost(Refused):
    """Another engine owns the campaign now; this one writes nothing more."""
