"""Read a manifest from YAML, and write one back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from engine.manifest.rules import check_rules
from engine.manifest.schema import Manifest
from harness.formats import yaml_document
from harness.formats.yaml_decode import decode
from harness.formats.yaml_document import Document


def load(path: Path) -> Manifest:
    """Read a manifest file. Raises InputError in one line with the line number."""
    manifest = _decode(yaml_document.read(path))
    project = Path(manifest.project).expanduser()
    return msgspec.structs.replace(manifest, project=str((path.parent / project).resolve()))


def parse(text: str, where: str) -> Manifest:
    """Parse a manifest's text; `where` names it in errors. `project` stays as it is written."""
    return _decode(yaml_document.parse(text, where))


def dump(manifest: Manifest, *, brief: bool = False) -> str:
    """Return the manifest as YAML; `brief` leaves out what equals its default."""
    value: dict[str, Any] = msgspec.to_builtins(manifest)
    if brief:
        value = _without(value, msgspec.to_builtins(Manifest(target_op="-")))
    return yaml_document.dump(value)


def schema() -> dict[str, Any]:
    """Return the manifest's JSON schema."""
    return msgspec.json.schema(Manifest)


def _decode(document: Document) -> Manifest:
    manifest = decode(_without_blanks(document), Manifest, _convert)
    check_rules(manifest, document)
    return manifest


def _convert(value: object, wanted: type[Manifest]) -> Manifest:
    """Convert strictly: msgspec ignores unknown keys of dataclasses, such as a Metric's."""
    manifest = msgspec.convert(value, wanted)
    if lost := _lost_key(value, msgspec.to_builtins(manifest), "$"):
        raise msgspec.ValidationError(lost)
    return manifest


def _lost_key(value: object, kept: object, at: str) -> str:
    """Return msgspec's message for the first key that decoding dropped, "" if there is none."""
    if isinstance(value, dict) and isinstance(kept, dict):
        for key, inner in value.items():
            if key not in kept:
                return f"Object contains unknown field `{key}` - at `{at}`"
            if message := _lost_key(inner, kept[key], f"{at}.{key}"):
                return message
    if isinstance(value, list) and isinstance(kept, list | tuple):
        for index, (inner, inner_kept) in enumerate(zip(value, kept, strict=True)):
            if message := _lost_key(inner, inner_kept, f"{at}[{index}]"):
                return message
    return ""


def _without_blanks(document: Document) -> Document:
    """Drop known keys without a value: `build_command:` alone means the default."""
    known = Manifest.__struct_fields__
    value = {key: inner for key, inner in document.value.items()
             if inner is not None or key not in known}
    return Document(value, document.lines, document.where)


def _without(value: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for key, inner in value.items():
        default = defaults.get(key)
        if inner == default:
            continue
        if isinstance(inner, dict) and isinstance(default, dict):
            inner = _without(inner, default)
        changed[key] = inner
    return changed
