"""Folders of the repository that tests read from, and files of a given size."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
DATA = ROOT / "tests" / "data"
SUPPORT = ROOT / "tests" / "support"
KIB = 1024


def fill(path: Path, kib: int) -> Path:
    """Write a file of `kib` KiB that cannot be compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(kib * KIB))
    return path
