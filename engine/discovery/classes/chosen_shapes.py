"""Write the classes and shapes that the baseline showed into the manifest and the quick script.

What a person wrote there stays: classes, representative shapes, a quick command. Writing the same
twice changes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from engine.discovery.classes import manifest_edit, quick_script, representative
from engine.discovery.classes.proposal import ClassProposal
from engine.manifest import load
from engine.manifest.benchmark_target import command_target
from engine.manifest.schema import Manifest


def write_script(folder: Path, manifest: Manifest, benchmark: str) -> Path:
    """Write the campaign's quick script and return its path; `benchmark` is the benchmark's text.

    It runs the shapes that the manifest lists, or all of them if it lists none.
    """
    shapes = representative.parse_shapes(manifest.representative_shapes)
    return _write(folder / quick_script.NAME,
                  quick_script.make_script(command_target(manifest), shapes, benchmark).text)


def has_own_quick_command(folder: Path, manifest: Manifest) -> bool:
    """Return whether the quick command is the user's, which has shapes of its own."""
    return manifest.quick_command not in (
        "", quick_script.script_command(folder / quick_script.NAME))


def write_classes(folder: Path, manifest_file: Path, proposal: ClassProposal) -> Manifest:
    """Write classes, core classes, shapes and, if it saves time, the quick command.

    Beside the user's own quick command, shapes are written only if its run was measured. Returns
    the manifest that the file then holds.
    """
    text = manifest_file.read_text(encoding="utf-8")
    old = load.parse(text, str(manifest_file))
    fields: dict[str, Any] = {}
    target = msgspec.structs.replace(
        old.target, configs=old.target.configs or proposal.strata.configs,
        core=old.target.core or proposal.core)
    if target != old.target:
        fields["target"] = target
    are_known = proposal.is_measured or not has_own_quick_command(folder, old)
    if old.representative_shapes is None and proposal.shapes and are_known:
        script = _write(folder / quick_script.NAME, proposal.quick.text)
        fields["representative_shapes"] = proposal.shapes
        if proposal.quick.by != "filter" and not old.quick_command:
            fields["quick_command"] = quick_script.script_command(script)
    if fields:
        _write(manifest_file, manifest_edit.edit_manifest(text, **fields))
    return load.load(manifest_file)


def _write(path: Path, text: str) -> Path:
    """Replace a file in one step."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    return path
