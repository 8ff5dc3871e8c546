"""Which machine a result is of, and where results are written."""

from __future__ import annotations

import json
import platform
import re
import time
from pathlib import Path
from typing import Any

from harness import devices
from harness.convert import to_builtins

RESULTS = Path(__file__).parent / "results"


def describe() -> dict[str, Any]:
    """Return what a reader needs to know of the machine."""
    return {"date": time.strftime("%Y-%m-%d %H:%M"), "system": platform.platform(),
            "python": platform.python_version(),
            "devices": [{"id": d.id, "name": d.name, "cores": d.cores}
                        for d in devices.inventory()]}


def write(name: str, result: dict[str, Any]) -> Path:
    """Store a raw result as bench/results/<name>-<machine>-<date>.json and return the path."""
    machine = describe()
    word = re.sub(r"[^a-z0-9]+", "-", machine["devices"][-1]["name"].lower()).strip("-")
    path = RESULTS / f"{name}-{word}-{time.strftime('%Y%m%d')}.json"
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(to_builtins({"machine": machine, **result}), indent=1) + "\n")
    return path
