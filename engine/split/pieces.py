"""Builds the pieces of a split source: base kernels, renamed copies, unused names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import msgspec

from engine.split.languages.conditions import Condition, Point
from engine.split.languages.language import Branch, DispatchBlock, Language
from engine.split.languages.syntax import Item
from harness.errors import Refused
from harness.formats import quantities
from harness.formats.text import plain
from harness.search.space import knobs
from harness.verdict import Config

_SUFFIX = re.compile(r"_(?:base|v[0-9]+)\Z")


def add_dispatchers(language: Language, text: str, blocks: tuple[DispatchBlock, ...],
                    functions: Collection[str], condition: Condition,
                    ) -> tuple[str, tuple[DispatchBlock, ...]]:
    """Rename the entries among `functions` to `…_base`; return the text and all dispatchers.

    The text has no dispatcher: `with_variants` writes the old and the new ones into it.
    """
    items = language.items(text)
    dispatched = {kernel for block in blocks for kernel in block.kernels}
    entries = [item.function for item in items
               if item.function in functions and item.function not in dispatched
               and not item.static and item.entry is not None
               and language.takes(item.entry, condition.columns)]
    if not entries and not dispatched & set(functions):
        raise Refused("no changed function is exported and takes "
                      f"{', '.join(condition.columns)} as an integer",
                      fix="give the function those parameters")
    base_of = {name: f"{name}_base" for name in entries}
    if clash := sorted(set(base_of.values()) & language.names(text)):
        raise Refused(f"the name {clash[0]} is already used in the source", fix="rename it there")
    out, at, length = [], 0, 0
    added: list[DispatchBlock] = []
    shifts: list[tuple[int, int]] = []
    for item in items:
        if not item.defines & base_of.keys():
            continue
        renamed = language.renamed(item.text, lambda name: base_of.get(name, name))
        prototype = "" if item.function else item.text  # the old and the new name need one
        part = text[at:item.begin] + prototype + renamed
        part += "" if renamed.endswith("\n") else "\n"
        part += language.gap if item.function else ""
        out.append(part)
        length, at = length + len(part), item.end
        shifts.append((item.end, length - item.end))
        if item.function:
            added.append(DispatchBlock(entry=item.function, default=base_of[item.function],
                                       branches=(), at=length))
    moved = [msgspec.structs.replace(
        block, at=block.at + next((shift for end, shift in reversed(shifts) if end <= block.at), 0))
        for block in blocks]
    return "".join([*out, text[at:]]), tuple([*moved, *added])


@dataclass(frozen=True)
class Variant:
    """A kernel that a dispatcher takes for some classes, and the code to write before it."""

    code: str
    kernel: str
    note: str


def with_variants(language: Language, text: str, blocks: Sequence[DispatchBlock],
                  condition: Condition, points: Sequence[Point], classes: Sequence[str],
                  variant_of: Callable[[DispatchBlock, str], Variant | None]) -> tuple[str, str]:
    """Write all dispatchers into the text; return it up to the last of them, and the rest."""
    item_of = {item.function: item for item in language.items(text)}
    out, at = [], 0
    for block in sorted(blocks, key=lambda block: block.at):
        out.append(text[at:block.at])
        at = block.at
        variant = variant_of(block, kernel_of(block, points, classes))
        if variant is not None:
            branch = Branch(condition=condition, kernel=variant.kernel, note=variant.note)
            block = msgspec.structs.replace(block, branches=(branch, *block.branches))
            out.append(variant.code)
        if block.branches:
            out.append(language.dispatcher(block, item_of[block.default]))
    return "".join(out), text[at:]


def kernel_of(block: DispatchBlock, points: Sequence[Point], classes: Sequence[str]) -> str:
    """Return the kernel that is called for rows of classes. Raises Refused for several kernels."""
    if not block.branches:
        return block.default
    if missing := block.columns - set(points[0]):
        raise Refused(f"the dispatch of {block.entry} tests {sorted(missing)[0]}, which is not a "
                      "column of the benchmark")
    kernels = {block.kernel_for(point) for point in points}
    if len(kernels) > 1:
        raise Refused(f"{', '.join(plain(name, 60) for name in classes[:2])} already take "
                      f"different kernels of {block.entry}", fix="split one of them at a time")
    return kernels.pop()


def copied(language: Language, text: str, copies: Sequence[Item], name_of: Mapping[str, str],
           values: Config, needed: frozenset[str]) -> str:
    """Return renamed copies of items, with knobs set, and the requirements on their knobs."""
    parts: list[str] = []
    declarations = knobs.find(text, language=language.knobs)
    declared = {knob.name for knob in declarations}
    copied_names = {name for item in copies for name in item.defines & declared}
    stems = {stem(name) for name in needed}
    for requirement in knobs.requirements(text, declarations):
        of_other_variants = {name for name in requirement.names - needed if stem(name) in stems}
        if requirement.names & copied_names and not of_other_variants:
            parts.append(language.comment(
                f"kopt: require {_with_names(requirement.text, name_of)}"))
    for item in copies:
        if item.defines & declared:
            settings = {name: value for name, value in values.items() if name in item.defines}
            copy = _with_names(
                knobs.apply(item.text, settings, language=language.knobs), name_of)
        else:
            copy = (language.gap if item.function else "") + language.renamed(
                item.text, lambda name: name_of.get(name, name))
        parts.append(copy if copy.endswith("\n") else f"{copy}\n")
    return "".join([*parts, "\n"]) if parts else ""


def _with_names(text: str, name_of: Mapping[str, str]) -> str:
    """Return a text with its names replaced, also in its comments."""
    return re.sub(r"[A-Za-z_]\w*", lambda match: name_of.get(match[0], match[0]), text)


def new_names(names: set[str], suffix: str) -> dict[str, str]:
    """Return the names of copies: `f_base` and `f_v1` become `f_v2`, unless both are copied."""
    stems = [stem(name) for name in names]
    return {name: (name if stems.count(stem) > 1 else stem) + suffix
            for name, stem in zip(names, stems, strict=True)}


def stem(name: str) -> str:
    """Return a name without the suffix that kopt has added."""
    return _SUFFIX.sub("", name)


def free_suffix(names: Iterable[str]) -> str:
    """Return the first of `_v1`, `_v2`, … that no name ends with."""
    used = {match[0] for name in names if (match := _SUFFIX.search(name))}
    return next(f"_v{number}" for number in count(1) if f"_v{number}" not in used)


def described(values: Config) -> str:
    """Return knobs and their values for a comment, without kopt's suffixes."""
    return ", ".join(f"{stem(name)}={value}" for name, value in values.items())


def listed(classes: Sequence[str]) -> str:
    """Return the names of classes for a comment; none of them can end it."""
    names = [plain(name, 80).replace("*/", "* /").replace("/*", "/ *") for name in classes]
    return f"class {quantities.listed(names, 4, ', class ')}" if names else "no class"
