"""Describes what to count; in a counted program this file is replaced."""

from __future__ import annotations

FOLDER: str = ""
"""Where each process writes what it counted."""
FILE: str = ""
MODULE: str = ""
"""The dotted module name, if no file is given."""
FUNCTION: str = ""
ARGS: tuple[tuple[int, str], ...] | None = None
"""Arguments that identify a shape: position in the call (-1: by name alone) and name; None: all."""
