"""Oracles of a small task on the CPU, which a shelf keeps for the next verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.compile.place import place_on
from harness.devices import inventory
from harness.runners.kept_oracle import OracleShelf
from harness.runners.oracle_client import Oracle
from harness.tasks.target import ConfigClass
from tests.support.kernels import kernel_case
from tests.support.kernels.c_case import tree
from tests.support.programs import shared_zygotes

REFERENCE = "import os, torch\ndef double(x):\n    print('doubled', flush=True)\n" \
    "    return x * {factor}\n"
CLASS = ConfigClass(name="small", shape={"n": 9})
TARGET = kernel_case.target(classes=(CLASS,), language="python")


def started(folder: Path, shelf: OracleShelf, factor: int = 2, **given: object) -> Oracle:
    base = Path(tree(folder / f"base-{factor}", "", REFERENCE.format(factor=factor)))
    place = place_on(inventory.find("cpu"), "python", scratch=str(folder), python=None,
                     env={})
    return Oracle(TARGET, base, folder / "io",
                  replace(place, zygote=shared_zygotes.for_place(place, "python")), shelf=shelf,
                  **given)  # type: ignore[arg-type]


def pid_of(oracle: Oracle) -> int:
    return oracle._peer._guarded.pid
