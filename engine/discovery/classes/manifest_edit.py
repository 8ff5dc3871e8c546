"""Change fields in a manifest's text; its comments and order stay."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from engine.manifest import load
from harness.errors import KoptError
from harness.formats import yaml_document

_TOP_KEY = re.compile(r"^([A-Za-z_]\w*)\s*:", re.MULTILINE)


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
