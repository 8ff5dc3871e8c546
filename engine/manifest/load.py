"""Read a manifest from YAML, with overrides from the environment, and write one back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from engine.manifest.pool_schema import CliSpec, PoolSpec
from engine.manifest.rules import check_rules
from engine.manifest.schema import Manifest
from engine.routing import source_language
from harness.errors import InputError
from harness.formats import yaml_document
from harness.formats.text import suggest
from harness.formats.yaml_decode import decode
from harness.formats.yaml_document import Document

POOL_VARIABLES = {
    "KOPT_POOL_MODE": "mode", "KOPT_SKIP_PROFILE": "skip_profile",
    "KOPT_SELFTEST_ITERATIONS": "selftest_iterations",
    "KOPT_MIN_PARALLEL_WORKERS": "min_workers", "KOPT_WORKERS_PER_GPU": "workers_per_gpu"}
"""The field of `pool` that each variable overrides; an empty variable overrides nothing."""
_SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def load(path: Path) -> Manifest:
    """Read a manifest file. Raises InputError in one line with the line number."""
    if not path.exists():
        raise InputError("there is no such manifest", where=str(path),
                         fix="kopt new FILE:FUNCTION or kopt new --project DIR writes one")
    manifest = _decode(yaml_document.read(path))
    project = Path(manifest.project).expanduser()
    return msgspec.structs.replace(manifest, project=str((path.parent / project).resolve()))


def load_new(path: Path) -> Manifest:
    """Read the manifest of a new campaign, whose kernel type must be known. Raises InputError."""
    manifest, key = load(path), "target_backend"
    name, known = manifest.target_backend, source_language.KNOWN_TYPES
    if name and source_language.written(name) not in known:
        raise InputError(f"{key}: unknown kernel type {name!r}; known: {', '.join(known)}",
                         where=yaml_document.read(path).at((key,)),
                         fix=suggest(name, known, listed=True))
    return manifest


def parse(text: str, where: str) -> Manifest:
    """Parse a manifest's text; `where` names it in errors. `project` stays as it is written."""
    return _decode(yaml_document.parse(text, where))


def dump(manifest: Manifest, *, brief: bool = False) -> str:
    """Return the manifest as YAML; `brief` leaves out what equals its default."""
    value: dict[str, Any] = msgspec.to_builtins(manifest)
    if brief:
        value = _without(value, msgspec.to_builtins(Manifest(target_op="-")))
        if commands := value.get("pool", {}).get("cli"):
            default = msgspec.to_builtins(CliSpec(name=""))
            value["pool"]["cli"] = [_without(command, default) for command in commands]
    return yaml_document.dump(value)


def apply_environment(pool: PoolSpec, environ: Mapping[str, str]) -> PoolSpec:
    """Return the pool with the environment's settings. Raises InputError naming the variable."""
    for variable, field in POOL_VARIABLES.items():
        if not (text := environ.get(variable, "").strip()):
            continue
        value: Any = _SWITCH.get(text.lower(), text) if field == "skip_profile" else \
            int(text) if text.isdecimal() else text
        fields = {name: getattr(pool, name) for name in pool.__struct_fields__} | {field: value}
        try:
            pool = msgspec.convert(msgspec.to_builtins(fields), PoolSpec)
        except msgspec.ValidationError as error:
            raise InputError(f"{text!r} is not a valid {field}: {str(error).partition(' - ')[0]}",
                             where=variable, fix="unset it, or see pool in the manifest") from None
    return pool


def _decode(document: Document) -> Manifest:
    manifest = decode(_without_blanks(document), Manifest, _convert)
    check_rules(manifest, document)
    return manifest


def _convert(value: object, into: type[Manifest]) -> Manifest:
    """Convert strictly: msgspec ignores unknown keys of dataclasses, such as a Metric's."""
    manifest = msgspec.convert(value, into)
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
