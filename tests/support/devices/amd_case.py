"""Writes stand-ins for the command-line tools of AMD cards."""

from __future__ import annotations

from pathlib import Path


def install_tool(folder: Path, name: str, script: str) -> None:
    """Put a command into a folder, which must be first on the PATH."""
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
