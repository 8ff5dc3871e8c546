"""Find a command campaign's classes and shapes in its baseline, and store them in its manifest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.campaign.setup import Setup
from engine.discovery.classes import chosen_shapes, quick_script, sample_runs
from engine.discovery.classes import proposal as proposals
from engine.discovery.classes.proposal import ClassProposal
from engine.discovery.project import sources
from engine.manifest import benchmark_target
from harness.devices.device import Device

FULL_RUNS = 2
"""Runs of the whole benchmark: a column that differs between them is no config column."""


def is_settled(setup: Setup) -> bool:
    """Return whether the manifest has classes, core classes and shapes, as after a baseline."""
    target = setup.manifest.target
    return bool(target.configs and target.core) and \
        setup.manifest.representative_shapes is not None


def write_quick_script(setup: Setup) -> Path:
    """Write the quick script with the manifest's shapes; call this before each run of it."""
    return chosen_shapes.write_script(setup.folder.path, setup.manifest, benchmark_source(setup))


def find_classes(setup: Setup, device: Device, *, cancel: threading.Event | None = None,
                 on_wait: Callable[[str], None] | None = None) -> tuple[Setup, ClassProposal]:
    """Run the baseline's benchmark and write its classes into the campaign's manifest.

    Returns the campaign with its new manifest. The caller makes sure that the card is idle. Raises
    BrokenIncumbent if the benchmark does not work, and Cancelled.
    """
    assert setup.command is not None
    quick = setup.command.quick
    if setup.manifest.representative_shapes is not None or \
            not chosen_shapes.has_own_quick_command(setup.folder.path, setup.manifest):
        quick = None
    readings = sample_runs.run_benchmark(
        setup.command, setup.tree(setup.repo.base), device, setup.folder.fresh_scratch("classes"),
        runs=FULL_RUNS, more_modes=[quick] if quick else [], python=setup.manifest.python,
        env=setup.manifest.env, cancel=cancel, on_wait=on_wait)
    proposal = proposals.propose_classes(
        setup.command, readings[:FULL_RUNS], benchmark_source(setup),
        quick_table=readings[FULL_RUNS].table if quick else None)
    manifest = chosen_shapes.write_classes(setup.folder.path, setup.folder.manifest, proposal)
    files = setup.repo.files(setup.repo.base)
    target = benchmark_target.sealed_target(manifest, files, setup.command.weights)
    return replace(setup, manifest=manifest, target=target), proposal


def benchmark_source(setup: Setup) -> str:
    """Return the text of the benchmark's script, "" if the command names no file."""
    files = setup.repo.files(setup.repo.base)
    script = quick_script.benchmark_file(setup.manifest.benchmark_command, tuple(files))
    return sources.read_source(setup.tree(setup.repo.base) / script) if script else ""
