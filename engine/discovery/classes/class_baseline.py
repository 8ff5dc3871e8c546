"""A command campaign's classes and shapes: found in its baseline, and then in its manifest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.campaign.setup import Setup
from engine.discovery.classes import chosen_shapes, proposal, quick_script, sample_runs
from engine.discovery.classes.proposal import ClassProposal
from engine.discovery.project import sources
from engine.manifest import benchmark_target
from harness.devices.device import Device

RUNS = 2
"""Of the whole benchmark: what differs between them is of no configuration."""


def settled(setup: Setup) -> bool:
    """Tell whether the manifest has classes, core ones and shapes, as after a baseline."""
    spec = setup.manifest.target
    return bool(spec.configs and spec.core) and setup.manifest.representative_shapes is not None


def prepare(setup: Setup) -> Path:
    """Write the quick script as the manifest has its shapes; to be done before each run of it."""
    return chosen_shapes.prepare(setup.folder.path, setup.manifest, source(setup))


def find(setup: Setup, device: Device, *, cancel: threading.Event | None = None,
         on_wait: Callable[[str], None] | None = None) -> tuple[Setup, ClassProposal]:
    """Run the baseline's benchmark, and write what it shows into the campaign's folder.

    Returns the campaign as its manifest has it then. The card is idle, which is for the caller to
    see to. Raises BrokenIncumbent for a benchmark that does not work, Cancelled.
    """
    assert setup.command is not None
    base = setup.tree(setup.repo.base)
    scratch, own = setup.folder.fresh_scratch("classes"), setup.command.quick
    if setup.manifest.representative_shapes is not None or \
            not chosen_shapes.has_own(setup.folder.path, setup.manifest):
        own = None
    readings = sample_runs.readings(
        setup.command, base, device, scratch, runs=RUNS, also=[own] if own else [],
        python=setup.manifest.python, env=setup.manifest.env, cancel=cancel, on_wait=on_wait)
    found = proposal.propose(setup.command, readings[:RUNS], source(setup),
                             measured=readings[RUNS].table if own else None)
    made = chosen_shapes.write(setup.folder.path, setup.folder.manifest, found)
    files = setup.repo.files(setup.repo.base)
    target = benchmark_target.sealed_target(made, files, setup.command.weights)
    return replace(setup, manifest=made, target=target), found


def source(setup: Setup) -> str:
    """Return the text of the benchmark's script, empty where the command names no file."""
    files = setup.repo.files(setup.repo.base)
    script = quick_script.benchmark_file(setup.manifest.benchmark_command, tuple(files))
    return sources.read(setup.tree(setup.repo.base) / script) if script else ""
