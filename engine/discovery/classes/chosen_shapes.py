"""Write the classes and shapes that the baseline showed into the manifest and the quick script.

What a person wrote there stays: classes, representative shapes, a quick command. Writing the same
twice changes nothing. A manifest's comments and order stay.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.discovery.classes import quick_script, representative
from engine.discovery.classes.proposal import ClassProposal
from engine.manifest import load
from engine.manifest.benchmark_target import command_target
from engine.manifest.schema import Manifest
from harness.errors import KoptError
from harness.formats import yaml_document

_TOP_KEY = re.compile(r"^([A-Za-z_]\w*)\s*:", re.MULTILINE)


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
        core=old.target.core or proposal.strata.core)
    if target != old.target:
        fields["target"] = target
    are_known = proposal.is_measured or not has_own_quick_command(folder, old)
    if old.representative_shapes is None and proposal.shapes and are_known:
        script = _write(folder / quick_script.NAME, proposal.quick.text)
        fields["representative_shapes"] = proposal.shapes
        if proposal.quick.by != "filter" and not old.quick_command:
            fields["quick_command"] = quick_script.script_command(script)
    if fields:
        _write(manifest_file, edit_manifest(text, **fields))
    return load.load(manifest_file)


def _write(path: Path, text: str) -> Path:
    """Replace a file in one step."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    return path


def edit_manifest(text: str, **fields: Any) -> str:
    """Return a manifest's text with new values for some fields, such as
    `representative_shapes=({"m": 64},)` or a whole `target=`.

    All other fields keep their values. A text that cannot be edited by lines is written anew from
    its values. Raises InputError for a value that does not fit.
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
    """Return the comments and empty lines after a key's value: they belong to what follows."""
    lines = block.splitlines(keepends=True)
    end = len(lines)
    while end > 1 and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return "".join(lines[end:])
