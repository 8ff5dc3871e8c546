"""The pieces that a split source is made of: base kernels, copies, free names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count

import msgspec

from engine.split.languages.c_dispatch import DispatchBlock
from engine.split.languages.c_source import Item
from engine.split.languages.conditions import Condition, Point
from engine.split.languages.language import Language
from harness.errors import Refused
from harness.formats.text import plain
from harness.search.space import knobs
from harness.search.space.space import Config

_SUFFIX = re.compile(r"_(?:base|v[0-9]+)\Z")


def opened(language: Language, text: str, blocks: tuple[DispatchBlock, ...],
           functions: Collection[str], condition: Condition) -> tuple[str,
           tuple[DispatchBlock, ...]]:
    """Make those of some functions that can be dispatched kernels called `…_base`, each behind a
    dispatcher that is yet to be written.
    """
    found = language.items(text)
    behind = {block.default for block in blocks} | {
        one.kernel for block in blocks for one in block.branches}
    new = [entry for item in found if item.function in functions and item.function not in behind
           and not item.static and (entry := language.entry_of(item)) is not None
           and language.takes(entry, condition.columns)]
    if not new and not behind & set(functions):
        raise Refused("what changes is of no exported function that takes "
                      f"{', '.join(condition.columns)} as whole numbers",
                      fix="give it those parameters")
    taken = language.names(text)
    base = {entry.name: f"{entry.name}_base" for entry in new}
    if clash := sorted(set(base.values()) & taken):
        raise Refused(f"the name {clash[0]} is taken in the source", fix="call it otherwise")
    out, at, length = [], 0, 0
    places: list[DispatchBlock] = []
    shift: list[tuple[int, int]] = []
    for item in found:
        if not item.defines & base.keys():
            continue
        own = language.renamed(item.text, lambda name: base.get(name, name))
        declared = "" if item.function else item.text  # a prototype: of both from now on
        part = text[at:item.begin] + declared + own + ("" if own.endswith("\n") else "\n")
        part += language.gap if item.function else ""
        out.append(part)
        length, at = length + len(part), item.end
        shift.append((item.end, length - item.end))
        if item.function:
            places.append(
                DispatchBlock(
                    entry=item.function, default=base[item.function], branches=(), at=length
                )
            )
    moved_blocks = [msgspec.structs.replace(
        block, at=block.at + next((by for end, by in reversed(shift) if end <= block.at), 0))
        for block in blocks]
    return "".join([*out, text[at:]]), tuple([*moved_blocks, *places])


def kernel_of(block: DispatchBlock, points: Sequence[Point], classes: Sequence[str]) -> str:
    """Return the kernel that classes take so far; points are rows of theirs, by parameter.

    Raises Refused where they take several.
    """
    if not block.branches:
        return block.default
    known = {column for branch in block.branches for column in branch.condition.columns}
    if missing := known - set(points[0]):
        raise Refused(f"the dispatch of {block.entry} goes by {sorted(missing)[0]}, which is no "
                      "column of the benchmark")
    kernels = {block.kernel_for(point) for point in points}
    if len(kernels) > 1:
        raise Refused(f"{', '.join(plain(name, 60) for name in classes[:2])} take different "
                      f"kernels of {block.entry} already", fix="split one of them at a time")
    return kernels.pop()


def copied(language: Language, text: str, copies: Sequence[Item], name_of: Mapping[str, str],
           values: Config, made_of: frozenset[str]) -> str:
    """Return copies under their new names, with the knobs set, and what is required of these.

    `made_of` are the names that the kernel is made of: other variants' requirements are theirs.
    """
    parts: list[str] = []
    found = knobs.find(text, language=language.knobs)
    declared = {knob.name for knob in found}
    own = {name for item in copies for name in item.defines & declared}
    stems = {stem(name) for name in made_of}
    for one in knobs.requirements(text, found):
        of_others = {name for name in one.names - made_of if stem(name) in stems}
        if one.names & own and not of_others:
            parts.append(language.comment(f"kopt: require {_reworded(one.text, name_of)}"))
    for item in copies:
        if item.defines & declared:
            here = {name: value for name, value in values.items() if name in item.defines}
            copy = _reworded(knobs.apply(item.text, here, language=language.knobs), name_of)
        else:
            copy = (language.gap if item.function else "") + language.renamed(
                item.text, lambda name: name_of.get(name, name))
        parts.append(copy if copy.endswith("\n") else f"{copy}\n")
    return "".join([*parts, "\n"]) if parts else ""


def _reworded(text: str, name_of: Mapping[str, str]) -> str:
    """Return a text with its names replaced, also in its comments."""
    return re.sub(r"[A-Za-z_]\w*", lambda found: name_of.get(found[0], found[0]), text)


def new_names(names: set[str], suffix: str) -> dict[str, str]:
    """Return what copies are called: `f_base` and `f_v1` become `f_v2`, unless both are copied."""
    stems = [stem(name) for name in names]
    return {name: (name if stems.count(stem) > 1 else stem) + suffix
            for name, stem in zip(names, stems, strict=True)}


def stem(name: str) -> str:
    """Return what a name is called without kopt's own endings."""
    return _SUFFIX.sub("", name)


def free_suffix(names: Iterable[str]) -> str:
    """Return the first `_v1`, `_v2`, … that no name ends with."""
    taken = {found[0] for name in names if (found := _SUFFIX.search(name))}
    return next(f"_v{number}" for number in count(1) if f"_v{number}" not in taken)


def shown(values: Config) -> str:
    """Return knobs and their values as a comment tells them."""
    return ", ".join(f"{stem(name)}={value}" for name, value in values.items())


def listed(classes: Sequence[str]) -> str:
    """Return some classes as a comment names them."""
    names = [plain(name, 80).replace("*/", "* /").replace("/*", "/ *") for name in classes]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"class {', class '.join(names[:4])}{more}" if names else "no class"
