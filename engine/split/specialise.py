"""Writes specialised variants of a kernel, and the dispatch to them, into its source.

What depends on the knobs that a variant sets is copied and renamed, the knobs too, so that a search
can go on with each variant's own; everything else is shared. The kernel that was there stays as it
is, as what is taken otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from engine.split.class_preferences import Group
from engine.split.languages.c_dispatch import Branch
from engine.split.languages.c_source import Item
from engine.split.languages.call_graph import dependent, reached
from engine.split.languages.language import C, Language
from engine.split.pieces import (
    copied,
    free_suffix,
    kernel_of,
    listed,
    new_names,
    opened,
    shown,
)
from harness.errors import Refused
from harness.formats.text import plain
from harness.search.space import knobs
from harness.search.space.space import Config

PLAIN_C = C()
MOST_VARIANTS = 6
"""Variants of one entry point, of all splits together."""


def split(source: str, groups: Sequence[Group], parameter_of: Mapping[str, str], *,
          start: Config, language: Language = PLAIN_C) -> str:
    """Return the source with a variant for each group of classes.

    `start` is the configuration that the groups' own are held against: the source's own. Raises
    Refused where a variant cannot be made, InputError for a source that cannot be read.
    """
    made: dict[tuple[str, str], str] = {}
    for group in groups:
        source = _with(language, source, group, parameter_of, start, made)
    knobs.requirements(source, knobs.find(source, language=language.knobs))
    return source


def _with(language: Language, source: str, group: Group, parameter_of: Mapping[str, str],
          start: Config, made: dict[tuple[str, str], str]) -> str:
    """Return the source with one variant more; `made` are those that this split has, by kernel and
    knobs.
    """
    changed = {name: value for name, value in group.config.items() if value != start.get(name)}
    condition = group.condition.by(parameter_of)
    points = [{parameter_of[name]: value for name, value in point.items()
               if name in parameter_of} for point in group.points]
    text, blocks = language.read(source)
    concerned = {item.function for item in dependent(language.items(text), changed)}
    text, blocks = opened(language, text, blocks, concerned - {""}, condition)
    found = language.items(text)
    moved = dependent(found, changed)
    by_function = {item.function: item for item in found if item.function}
    suffix = free_suffix(language.names(text))
    out, at, done = [], 0, False
    name_of: dict[str, str] = {}
    values: Config = {}
    made_of: frozenset[str] = frozenset()
    waiting: list[Item] = []
    for block in sorted(blocks, key=lambda one: one.at):
        out.append(text[at:block.at])
        at = block.at
        kernel = kernel_of(block, points, group.classes)
        parts = reached(found, kernel)
        copies = [item for item in parts if item in moved]
        if by_function[kernel] in copies:
            if len(block.branches) >= MOST_VARIANTS:
                raise Refused(f"{block.entry} has {MOST_VARIANTS} variants already",
                              fix="take away those that gain least")
            here = {name for item in copies for name in item.defines}
            used = {name: value for name, value in changed.items() if name in here}
            same = kernel, shown(used)
            if same not in made:
                fresh = [item for item in copies if not item.defines <= name_of.keys()]
                name_of |= new_names(here, suffix)
                values, made[same] = {**values, **used}, name_of[kernel]
                made_of |= frozenset[str]().union(*(item.defines for item in parts))
                waiting += fresh
                title = f"{made[same]}: {kernel} with {shown(used)}, for {listed(group.classes)}"
                out.append(language.comment(title))
            now = [item for item in waiting if item.end <= at]
            waiting = [item for item in waiting if item.end > at]
            out.append(copied(language, text, now, name_of, values, made_of))
            branch = Branch(condition=condition, kernel=made[same], told=_told(used, group))
            block = msgspec.structs.replace(block, branches=(branch, *block.branches))
            done = True
        if block.branches:
            out.append(language.dispatcher(block, by_function[block.default]))
    if not done:
        raise Refused(f"{', '.join(changed) or 'no knob'} does not change the kernel that "
                      f"{', '.join(plain(name, 60) for name in group.classes[:2])} takes")
    rest = text[at:]
    if waiting:
        more = copied(language, text, waiting, name_of, values, made_of)
        rest = f"{rest.rstrip()}\n\n{more}".rstrip()
    return "".join([*out, rest + "\n" * (bool(rest) and not rest.endswith("\n"))])


def _told(values: Config, group: Group) -> str:
    return f"({shown(values)}), {listed(group.classes)}"
