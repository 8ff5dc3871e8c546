"""Read a manifest from YAML, and write one back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from engine.manifest.schema import Manifest
from harness.errors import Refused
from harness.formats import yaml_document
from harness.formats.yaml_decode import decode


def load(path: Path) -> Manifest:
    """Read a manifest file; raises InputError in one line with the line number."""
    manifest = _decode(yaml_document.read(path))
    project = Path(manifest.project).expanduser()
    return msgspec.structs.replace(manifest, project=str((path.parent / project).resolve()))


def parse(text: str, where: str) -> Manifest:
    """Read a manifest from text; `where` names it in errors. `project` is left as it is."""
    return _decode(yaml_document.parse(text, where))


def _decode(document: yaml_document.Document) -> Manifest:
    from engine.manifest.rules import check

    manifest = decode(_without_blanks(document), Manifest, msgspec.convert)
    check(manifest, document)
    return manifest


def _without_blanks(document: yaml_document.Document) -> yaml_document.Document:
    """Drop known keys that are given nothing: `build_command:` alone means the default."""
    known = Manifest.__struct_fields__
    value = {key: given for key, given in document.value.items()
             if given is not None or key not in known}
    return yaml_document.Document(value, document.lines, document.where)


def dump(manifest: Manifest, *, brief: bool = False) -> str:
    """Return the manifest as YAML; `brief` leaves out what equals its default."""
    value: dict[str, Any] = msgspec.to_builtins(manifest)
    if brief:
        value = _without(value, msgspec.to_builtins(Manifest(target_op="-")))
    return yaml_document.dump(value)


def _without(value: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, given in value.items():
        default = defaults.get(key)
        if given == default:
            continue
        if isinstance(given, dict) and isinstance(default, dict):
            given = _without(given, default)
        kept[key] = given
    return kept


def schema() -> dict[str, Any]:
    """Return the manifest's JSON schema."""
    return msgspec.json.schema(Manifest)


def check_runnable(manifest: Manifest) -> None:
    """Raise Refused in one line if this version cannot run a campaign on such a target."""
    if manifest.target.kind == "schedule":
        raise Refused("schedule targets are read but cannot be run yet", where="target.kind",
                      fix="describe the kernel in a task file and use kind: kernel")
    if manifest.target.kind == "command":
        from engine.manifest.benchmark_target import check_judgeable

        check_judgeable(manifest)
