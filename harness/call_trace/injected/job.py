"""Describes what to count or to watch; in the program this file is replaced."""

from __future__ import annotations

BEGIN: str = "hook"
"""The module that is started: `hook` counts calls, `watch` records their arguments and results."""
FOLDER: str = ""
"""Where each process writes what it counted or watched."""
FILE: str = ""
MODULE: str = ""
"""The dotted module name, if no file is given."""
FUNCTION: str = ""
ARGS: tuple[tuple[int, str], ...] | None = None
"""Arguments that identify a shape: position in the call (-1: by name alone) and name; None: all."""
LINES: tuple[int, ...] = ()
"""The first lines of the watched function's definitions in FILE."""
INTERPRET: bool = False
"""Whether Triton runs in its interpreter, where an autotuner takes its first config."""
ON_CPU: bool = False
"""Whether CUDA devices that the program names are the CPU, if there is no GPU."""
OWNER: str = ""
"""The class whose method is watched; its constructor is watched too."""
PARTS: dict[str, list[str]] = {}
"""The names that the watched function gives to the parts of an argument that is a container."""
