"""The types of a recorded trial's fields, in a module that takes no time to import."""

from __future__ import annotations

from typing import Literal

LatencyKind = Literal["measured-gpu", "measured-cpu", "reported", "predicted"]
Correctness = Literal["PASS", "FAIL", "REJECTED"]
"""Right on every class; wrong, crashed or hung; refused before it could run."""
Tag = Literal["kept", "tried", "revert", "rejected"]
"""The new best; right but no better; wrong; refused."""
Value = int | float | str
"""The value of a knob."""
Config = dict[str, Value]
"""A configuration: the value of each knob by its name."""
