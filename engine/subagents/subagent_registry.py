"""Finds subagents: the built-in ones, then those of the user, then those of the project.

A later folder overrides an earlier subagent of the same name, and need only state what it changes.
A folder has a SUBAGENT.yaml with the fields and a SYSTEM_PROMPT.md with the prompt. `variants`
makes one subagent of each entry: its `source` and `target` replace {source} and {target} in all
texts of the definition, its other keys replace the definition's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from engine import data_folders
from engine.subagents.prompt_template import BUILT_IN
from engine.subagents.subagent import Subagent, SubagentFields
from harness.errors import InputError, KoptError
from harness.formats import yaml_document
from harness.formats.text import one_line, suggest
from harness.formats.yaml_decode import decode
from harness.formats.yaml_document import Document

DEFAULT = "general-kernel-optimization"
DEFINITION, PROMPT = "SUBAGENT.yaml", "SYSTEM_PROMPT.md"
PROMPT_BYTES = 64 << 10


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `agent` section: the limits of one task, and the model that works on it."""

    step_limit: Annotated[int, Meta(ge=0, le=10_000)] = 200
    cost_limit_usd: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    timeout_s: Annotated[float, Meta(ge=0, le=604_800)] = 0.0
    model: str = ""


class SubagentFile(SubagentFields, frozen=True, kw_only=True):
    """The fields of SUBAGENT.yaml, without `variants`."""

    agent: AgentLimits = AgentLimits()


class Registry(msgspec.Struct, frozen=True, kw_only=True):
    """All subagents by name, and one line for each file that could not be used."""

    subagents: dict[str, Subagent]
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.subagents))

    def get(self, name: str) -> Subagent:
        """Return a subagent. Raises InputError if there is none of that name."""
        if name not in self.subagents:
            raise InputError(f"there is no subagent {name!r}",
                             fix=suggest(name, self.names) or "kopt subagents lists them")
        return self.subagents[name]

    def for_source(self, path: str, text: str) -> dict[str, Subagent]:
        """Return the subagents that may work on a source, those that match it best first."""
        scores = {name: subagent.score(path, text) for name, subagent in self.subagents.items()
                  if subagent.language_match is None or subagent.score(path, text)}
        return {name: self.subagents[name]
                for name in sorted(scores, key=lambda name: (-scores[name], name))}


def load(project: Path | None) -> Registry:
    """Read all subagents. A bad file becomes a problem."""
    subagents: dict[str, Subagent] = {}
    fields: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for root in data_folders.overriding(BUILT_IN, project):
        seen: dict[str, Path] = {}
        for folder in _definitions(root, problems):
            try:
                for subagent, raw in _read(folder, fields, subagents):
                    if subagent.name in seen:
                        raise InputError(f"{seen[subagent.name]} already defines {subagent.name!r}",
                                         where=str(folder), fix="rename one of them")
                    seen[subagent.name] = folder
                    subagents[subagent.name], fields[subagent.name] = subagent, raw
            except (KoptError, OSError) as error:
                problems.append(one_line(str(error), 500))
    return Registry(subagents=subagents, problems=tuple(problems))


def _definitions(root: Path, problems: list[str]) -> Iterator[Path]:
    """Yield the folders with a definition; one with a prompt only is a problem."""
    try:
        inner = sorted(root.iterdir()) if root.is_dir() else []
    except OSError as error:
        problems.append(f"{root}: cannot be read: {error.strerror}")
        return
    for folder in inner:
        if (folder / DEFINITION).exists():
            yield folder
        elif (folder / PROMPT).exists():
            problems.append(f"{folder}: has a {PROMPT} but no {DEFINITION}")


def _read(folder: Path, fields: Mapping[str, dict[str, Any]], known: Mapping[str, Subagent]
          ) -> Iterator[tuple[Subagent, dict[str, Any]]]:
    """Yield the subagents of a folder with their fields, merged over those of the same name.

    Raises InputError or OSError.
    """
    document = yaml_document.read(folder / DEFINITION)
    prompt = _prompt(folder / PROMPT)
    for variant in _variants(document):
        name = str(variant.value.get("name", ""))
        merged = replace(variant, value=_merge(fields.get(name, {}), variant.value))
        parts = decode(merged, SubagentFile, msgspec.convert)
        if not prompt and name not in known:
            raise InputError(f"there is no {PROMPT}", where=str(folder))
        field_values = msgspec.structs.asdict(parts)
        limits = msgspec.structs.asdict(field_values.pop("agent"))
        yield Subagent(system_prompt=prompt or known[name].system_prompt, path=str(folder),
                       **field_values, **limits), merged.value


def _prompt(path: Path) -> str:
    """Return a prompt, "" if there is none."""
    if not path.exists():
        return ""
    if not path.is_file() or path.stat().st_size > PROMPT_BYTES:
        raise InputError(f"expected a file of at most {PROMPT_BYTES >> 10} KiB", where=str(path))
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where=str(path)) from error


def _variants(document: Document) -> Iterator[Document]:
    """Yield the definition, once for each of its variants."""
    value = dict(document.value)
    variants = value.pop("variants", [{}])
    if not (isinstance(variants, list) and variants
            and all(isinstance(entry, dict) for entry in variants)):
        raise InputError("variants: expected a list of one or more mappings",
                         where=document.at(("variants",)))
    for entry in variants:
        fields = {key: str(entry[key]) for key in ("source", "target") if key in entry}
        others = {key: inner for key, inner in entry.items() if key not in fields}
        yield replace(document, value=_filled(value | others, fields))


def _filled(value: Any, fields: Mapping[str, str]) -> Any:
    """Return a value with {name} replaced in all its texts."""
    if isinstance(value, dict):
        return {key: _filled(inner, fields) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, fields) for inner in value]
    for name, word in fields.items():
        value = value.replace(f"{{{name}}}", word) if isinstance(value, str) else value
    return value


def _merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `overrides`; mappings in both are merged, lists replaced."""
    return {**base, **{key: _merge(base[key], inner) if isinstance(inner, dict)
                       and isinstance(base.get(key), dict) else inner
                       for key, inner in overrides.items()}}
