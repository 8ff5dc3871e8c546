"""Find a command campaign's classes and shapes in its baseline, and store them in its manifest.

Values that a person wrote in the manifest stay: classes, representative shapes, a quick command.
Comments and order inside a key that is rewritten are lost. Writing the same classes twice changes
nothing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from engine.campaign.setup import Setup
from engine.discovery.classes import proposal as proposals
from engine.discovery.classes import quick_script, representative, sample_runs
from engine.discovery.classes.proposal import ClassProposal
from engine.discovery.project import sources
from engine.manifest import benchmark_target, load
from engine.manifest.schema import Manifest
from harness.devices.device import Device
from harness.errors import KoptError
from harness.formats import file_copy, yaml_document

FULL_RUNS = 2
"""Runs of the whole benchmark: a column that differs between them is not a config column."""


_TOP_KEY = re.compile(r"^([A-Za-z_]\w*)\s*:", re.MULTILINE)


def is_settled(setup: Setup) -> bool:
    """Return whether the manifest has classes, core classes and shapes: none must be found."""
    target = setup.manifest.target
    return bool(target.configs and target.core) and \
        setup.manifest.representative_shapes is not None


def write_quick_script(setup: Setup) -> Path:
    """Write the quick script with the manifest's shapes; call this before each run of it."""
    return write_script(setup.folder.path, setup.manifest, benchmark_source(setup))


def find_classes(setup: Setup, device: Device, *, cancel: threading.Event | None = None,
                 on_wait: Callable[[str], None] = lambda _: None,
                 ) -> tuple[Setup, ClassProposal]:
    """Run the baseline's benchmark and write its classes into the campaign's manifest.

    Returns the campaign with its new manifest, and the proposal. The caller makes sure that the
    card is idle. Raises BrokenIncumbent if the benchmark does not work, and Cancelled.
    """
    assert setup.command is not None
    quick = setup.command.quick
    if setup.manifest.representative_shapes is not None or \
            not has_own_quick_command(setup.folder.path, setup.manifest):
        quick = None
    readings = sample_runs.run_benchmark(
        setup.command, setup.tree(setup.repo.base), device, setup.folder.fresh_scratch("classes"),
        runs=FULL_RUNS, more_modes=[quick] if quick else [], python=setup.manifest.python,
        env=setup.manifest.env, cancel=cancel, on_wait=on_wait)
    proposal = proposals.propose_classes(
        setup.command, readings[:FULL_RUNS], benchmark_source(setup),
        quick_table=readings[FULL_RUNS].table if quick else None)
    manifest = write_classes(setup.folder.path, setup.folder.manifest, proposal)
    files = setup.repo.files(setup.repo.base)
    target = benchmark_target.sealed_target(manifest, files, setup.command.weights)
    return replace(setup, manifest=manifest, target=target), proposal


def benchmark_source(setup: Setup) -> str:
    """Return the text of the benchmark's script, "" if the command names no file."""
    files = setup.repo.files(setup.repo.base)
    script = quick_script.benchmark_file(setup.manifest.benchmark_command, tuple(files))
    return sources.read_source(setup.tree(setup.repo.base) / script) if script else ""


def write_script(folder: Path, manifest: Manifest, benchmark: str) -> Path:
    """Write the campaign's quick script and return its path; `benchmark` is the benchmark's text.

    It runs the shapes that the manifest lists, or all of them if it lists none.
    """
    shapes = representative.parse_shapes(manifest.representative_shapes)
    target = benchmark_target.command_target(manifest)
    path = folder / quick_script.NAME
    file_copy.replace_file(path, quick_script.make_script(target, shapes, benchmark).text.encode())
    return path


def has_own_quick_command(folder: Path, manifest: Manifest) -> bool:
    """Return whether the quick command is the user's: it has its own shapes, not kopt's."""
    return manifest.quick_command not in (
        "", quick_script.script_command(folder / quick_script.NAME))


def write_classes(folder: Path, manifest_file: Path, proposal: ClassProposal) -> Manifest:
    """Write classes, core classes, shapes, the row command and, if it saves time, a quick command.

    The row command runs one row: to measure GPU kernel time, and to check held-out rows. If the
    user has a quick command, shapes are written only if that command was run. Returns the manifest
    as the file then has it.
    """
    text = manifest_file.read_text(encoding="utf-8")
    old = load.parse(text, str(manifest_file))
    fields: dict[str, Any] = {}
    names_core = bool(old.target.configs and old.target.core)  # `core` names classes of `configs`
    target = msgspec.structs.replace(
        old.target, configs=old.target.configs if names_core else proposal.strata.configs,
        core=old.target.core or proposal.strata.core,
        row_command=old.target.row_command or proposal.quick.row_command)
    if target != old.target:
        fields["target"] = target
    are_known = proposal.is_measured or not has_own_quick_command(folder, old)
    if old.representative_shapes is None and proposal.shapes and are_known:
        script = folder / quick_script.NAME
        file_copy.replace_file(script, proposal.quick.text.encode())
        fields["representative_shapes"] = proposal.shapes
        if proposal.quick.by != "filter" and not old.quick_command:
            fields["quick_command"] = quick_script.script_command(script)
    if fields:
        file_copy.replace_file(manifest_file, edit_manifest(text, **fields).encode())
    return load.load(manifest_file)


def edit_manifest(text: str, **fields: Any) -> str:
    """Return a manifest's text with new values for some fields.

    A field is given as `representative_shapes=({"m": 64},)` or as a whole `target=`; all others
    keep their values. If editing single lines gives another manifest, the whole text is written
    anew. Raises InputError for an invalid value.
    """
    expected = msgspec.structs.replace(load.parse(text, "the manifest"), **fields)
    plain: Mapping[str, Any] = msgspec.to_builtins(expected)
    brief = yaml_document.parse(load.dump(expected, brief=True), "the manifest").value
    edited = text
    for name in fields:
        edited = _with_value(edited, name, brief.get(name, plain[name]))
    try:
        if load.parse(edited, "the manifest") == expected:
            return edited
    except KoptError:
        pass
    new_text = load.dump(expected)
    load.parse(new_text, "the manifest")
    return new_text


def _with_value(text: str, name: str, value: Any) -> str:
    """Return a text with a new value for one top-level key, at its place or at the end."""
    line = yaml_document.dump({name: value})
    keys = list(_TOP_KEY.finditer(text))
    for at, key in enumerate(keys):
        if key[1] == name:
            end = keys[at + 1].start() if at + 1 < len(keys) else len(text)
            return text[:key.start()] + line + _comments_after(text[key.start():end]) + text[end:]
    return text + ("" if text.endswith("\n") or not text else "\n") + line


def _comments_after(block: str) -> str:
    """Return the comments and empty lines after a key's value: they belong to the next key."""
    lines = block.splitlines(keepends=True)
    end = len(lines)
    while end > 1 and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return "".join(lines[end:])
