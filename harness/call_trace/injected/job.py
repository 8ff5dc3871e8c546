"""What is counted; in a counted program there is another file in place of this one."""

from __future__ import annotations

FOLDER: str = ""
"""Where each process writes what it counted."""
FILE: str = ""
MODULE: str = ""
"""By its dotted name, where no file is given."""
FUNCTION: str = ""
ARGS: tuple[tuple[int, str], ...] | None = None
"""Arguments that tell shapes apart: place in the call (-1: by name alone) and name; None: all."""
