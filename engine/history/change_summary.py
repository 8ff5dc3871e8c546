"""Summarise a candidate's change in a few words: its files, and its lines if they are few."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from engine.journal.records import Candidate
from engine.judge.commit_message import functions
from engine.repository.patches import patch as patches
from engine.repository.patches.patch import FilePatch, Patch
from harness.errors import InputError
from harness.formats.quantities import listed
from harness.search.space import knobs as harness_knobs

_VARIANT = re.compile(r"_(v[0-9]+)\Z")
"""The suffix that a split gives to the name of a knob that it copies for a variant."""
FEW, LONGEST = 3, 80
"""Most lines of each side that are quoted, and most characters of such a line."""
_KNOB = re.compile(r"\s*(?:/\*|//|#)\s*kopt:.*$")


def files(folder: Path, candidate: Candidate | None) -> tuple[str, ...]:
    """Return the files that a candidate's stored patch changes; () if the patch was pruned."""
    return tuple(file.path for file in _patch(folder, candidate).files)


def describe(folder: Path, candidate: Candidate | None) -> str:
    """Return the change in words: its lines if they are few, else its size.

    `k.c: #define TILE 16 -> #define TILE 64`, or `k.c +12 -3 in scan()`.
    """
    return "; ".join(map(_describe_file, _patch(folder, candidate).files))


def quoted(folder: Path, candidate: Candidate | None) -> str:
    """Return the lines of a small change in one file, "" for any other change."""
    changed = _patch(folder, candidate).files
    return _words(_pairs(changed[0])) if len(changed) == 1 else ""


def short(folder: Path, candidate: Candidate | None) -> str:
    """Return the knobs that a change sets, `TILE 16 -> 64`, or its lines.

    It returns the lines only if they are few and do more than set knobs.
    """
    changed, settings = _patch(folder, candidate).files, knobs(folder, candidate)
    pairs = _pairs(changed[0]) if len(changed) == 1 else []
    if len(pairs) == settings.count(" -> "):
        return settings
    return _words(pairs).rstrip(";") or settings


def knobs(folder: Path, candidate: Candidate | None) -> str:
    """Return the knobs that a change of any length sets: `TILE 16 -> 64, N = 4 in variant v1`."""
    return _settings(_patch(folder, candidate).files)


def _settings(files: Iterable[FilePatch]) -> str:
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    for file in files:
        for line in file.text.splitlines():
            if line[:1] in ("-", "+"):
                (before if line[0] == "-" else after).update(_knobs_of(line[1:]))
    changed = [f"{name} {before[name]} -> {value}" for name, value in after.items()
               if name in before and before[name] != value]
    variant_knobs = [f"{name[:end.start()]} = {value} in variant {end[1]}"
                     for name, value in after.items()
                     if name not in before and (end := _VARIANT.search(name))]
    return ", ".join([*changed, *variant_knobs])


def _knobs_of(line: str) -> dict[str, str]:
    """Return the knob that a line declares, with its value."""
    try:
        return {knob.name: str(knob.value) for knob in harness_knobs.find(line, language="c")}
    except InputError:
        return {}


def _patch(folder: Path, candidate: Candidate | None) -> Patch:
    if candidate is None:
        return Patch()
    try:
        data = (folder / candidate.patch_path).read_bytes()
        return patches.parse(data, where=candidate.patch_path)
    except (OSError, InputError):
        return Patch()


def _describe_file(file: FilePatch) -> str:
    if lines := _words(_pairs(file)):
        return f"{file.path}: {lines}"
    settings = _settings([file])
    if settings and settings.count(" -> ") == file.added == file.removed:
        return f"{file.path}: {settings}"
    names = listed([f"{name}()" for name in functions(file)], FEW)
    return f"{file.path} +{file.added} -{file.removed}{names and f' in {names}'}"


def _words(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{before} -> {after}" if before and after else
                     f"added {after}" if after else f"removed {before}" for before, after in pairs)


def _pairs(file: FilePatch) -> list[tuple[str, str]]:
    """Return the lines of a small change before and after; "" stands for no line."""
    if file.binary or not 0 < max(file.removed, file.added) <= FEW:
        return []
    changed = [line for line in file.text.splitlines()
               if line[:1] in ("-", "+") and not line.startswith(("--- ", "+++ "))]
    removed, added = ([_KNOB.sub("", line[1:]).strip() for line in changed if line[0] == sign]
                      for sign in "-+")
    if any(len(line) > LONGEST for line in (*removed, *added)):
        return []
    return [pair for pair in zip_longest(removed, added, fillvalue="") if pair[0] != pair[1]]
