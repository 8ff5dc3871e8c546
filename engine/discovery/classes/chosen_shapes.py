"""What the baseline has chosen, written into a campaign's manifest and its quick script.

What a person wrote there stays: classes, representative shapes, a quick command of their own. To
write the same twice changes nothing.
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


def prepare(folder: Path, manifest: Manifest, source: str) -> Path:
    """Write the quick script of a new campaign and return its path; `source` is the benchmark's.

    It runs the shapes that the manifest lists, or all of them as long as none were chosen.
    """
    shapes = representative.read(manifest.representative_shapes)
    return _put(
        folder / quick_script.NAME,
        quick_script.script(command_target(manifest), shapes, source).text,
    )


def has_own(folder: Path, manifest: Manifest) -> bool:
    """Tell whether the quick command is the user's, which knows no shapes but its own."""
    return manifest.quick_command not in ("", quick_script.command(folder / quick_script.NAME))


def write(folder: Path, manifest_file: Path, found: ClassProposal) -> Manifest:
    """Write classes, core ones, shapes and, where it saves time, the quick command.

    Beside a quick command of the user's, shapes are those that it was seen to measure, or none.
    Returns the manifest as it is then in its file.
    """
    text = manifest_file.read_text(encoding="utf-8")
    old = load.parse(text, str(manifest_file))
    fields: dict[str, Any] = {}
    spec = msgspec.structs.replace(old.target, configs=old.target.configs or found.strata.configs,
                                   core=old.target.core or found.core)
    if spec != old.target:
        fields["target"] = spec
    truly = found.measured or not has_own(folder, old)
    if old.representative_shapes is None and found.shapes and truly:
        script = _put(folder / quick_script.NAME, found.quick.text)
        fields["representative_shapes"] = found.shapes
        if found.quick.saves and not old.quick_command:
            fields["quick_command"] = quick_script.command(script)
    if fields:
        _put(manifest_file, manifest_edit.written(text, **fields))
    return load.load(manifest_file)


def _put(path: Path, text: str) -> Path:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    return path
