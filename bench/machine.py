"""Describe the machine of a result, and write results."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.compile.place import kind_of, place_on
from harness.devices import inventory
from harness.devices.device import Device
from harness.formats.json_codec import to_builtins
from harness.isolation.zygote_client import Zygote
from harness.tasks.target import Target

RESULTS = Path(__file__).parent / "results"


def describe() -> dict[str, Any]:
    """Return the facts about this machine that a reader of a result needs."""
    return {"date": time.strftime("%Y-%m-%d %H:%M"), "system": platform.platform(),
            "python": platform.python_version(),
            "devices": [{"id": d.id, "name": d.name, "cores": d.cores}
                        for d in inventory.inventory()]}


def card() -> Device:
    """Return the first GPU that this process may use; end the program with a message if none."""
    cards = [device for device in inventory.inventory() if device.kind != "cpu"]
    usable = next((card for card in cards if not card.unusable), None)
    if usable is None:
        sys.exit(f"{Path(sys.argv[0]).name} measures on a GPU: "
                 f"{cards[0].unusable if cards else 'this machine has none'}")
    return usable


def zygote(device: Device, language: str = "triton") -> Zygote:
    """Start the process that kernels are forked off, one for all verdicts as in a campaign."""
    place = place_on(device, language, scratch="", python=None, env={})
    kind = kind_of(place, language)
    assert kind is not None
    return Zygote.start(kind)


def gpu_versions() -> dict[str, str]:
    """Return the versions of torch, triton, CUDA and the driver."""
    code = "import torch, triton; print(torch.__version__, triton.__version__, torch.version.cuda)"
    versions = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    words = versions.stdout.split() or ["", "", ""]
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,clocks.sm,power.limit",
                             "--format=csv,noheader"], capture_output=True, text=True)
    return dict(zip(("torch", "triton", "cuda"), words, strict=True)) | {
        "driver": driver.stdout.strip()}


def only(task: Target, *names: str) -> Target:
    """Return a task with only some of its classes."""
    return replace(task, classes=tuple(map(task.config_class, names)))


class JsonLines:
    """A file of results that grows line by line, from any thread; prints the start of each line."""

    def __init__(self, path: Path, *, printed: int = 400) -> None:
        self.path, self.printed = path, printed
        self._lock = threading.Lock()

    def keep(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, "date": time.strftime("%Y-%m-%d %H:%M:%S"), **fields})
        with self._lock, self.path.open("a") as file:
            file.write(line + "\n")
        if self.printed:
            print(line[:self.printed], flush=True)

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def write(name: str, result: dict[str, Any]) -> Path:
    """Store a raw result as bench/results/<name>-<machine>-<date>.json and return the path."""
    machine = describe()
    word = re.sub(r"[^a-z0-9]+", "-", machine["devices"][-1]["name"].lower()).strip("-")
    path = RESULTS / f"{name}-{word}-{time.strftime('%Y%m%d')}.json"
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps(to_builtins({"machine": machine, **result}), indent=1) + "\n")
    return path
