"""Writing what the baseline has shown into a manifest's text, whose comments and order stay."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from engine.manifest import load
from harness.errors import KoptError
from harness.formats import yaml_document

_TOP = re.compile(r"^([A-Za-z_]\w*)\s*:", re.MULTILINE)


def written(text: str, **fields: Any) -> str:
    """Return a manifest's text with some fields given new values, such as
    `representative_shapes=({"m": 64},)` and `target=` a whole part.

    What the text says otherwise stays as it is; if it is written in a way that cannot be edited by
    lines, it is written anew. Raises InputError where a value does not fit.
    """
    wanted = msgspec.structs.replace(load.parse(text, "the manifest"), **fields)
    plain: Mapping[str, Any] = msgspec.to_builtins(wanted)
    brief = yaml_document.parse(load.dump(wanted, brief=True), "the manifest").value
    edited = text
    for name in fields:
        edited = _with(edited, name, brief.get(name, plain[name]))
    try:
        if load.parse(edited, "the manifest") == wanted:
            return edited
    except KoptError:
        pass
    anew = load.dump(wanted)
    load.parse(anew, "the manifest")
    return anew


def _with(text: str, name: str, value: Any) -> str:
    """Return a text with one top-level key given another value, at its place or at the end."""
    line = yaml_document.dump({name: value})
    tops = list(_TOP.finditer(text))
    for at, top in enumerate(tops):
        if top[1] != name:
            continue
        end = tops[at + 1].start() if at + 1 < len(tops) else len(text)
        return text[:top.start()] + line + _kept(text[top.start():end]) + text[end:]
    return text + ("" if text.endswith("\n") or not text else "\n") + line


def _kept(block: str) -> str:
    """Return the comments and empty lines after a key's value: they are about what follows."""
    lines = block.splitlines(keepends=True)
    end = len(lines)
    while end > 1 and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
        end -= 1
    return "".join(lines[end:])
