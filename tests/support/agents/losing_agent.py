"""Agents for tests of budgets and stagnation: one never ends, one makes the kernel slower."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

SOURCE = Path("scale.c")


def passes(count: int) -> None:
    SOURCE.write_text(re.sub(r"PASSES \d+ ", f"PASSES {count} ", SOURCE.read_text()))


def waits() -> None:
    """Make the kernel faster, then never end."""
    passes(1)
    time.sleep(1000)


def loses() -> None:
    """Make the kernel slower, differently each time; print the prompt to the log."""
    print(Path(sys.argv[2]).read_text())
    passes(60 + int.from_bytes(os.urandom(2)) % 500)


if __name__ == "__main__":
    {"waits": waits, "loses": loses}[sys.argv[1]]()
