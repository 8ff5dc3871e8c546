"""Writes variants of a kernel that are specialised by their knobs, and the dispatch to them.

A variant copies and renames all that depends on the knobs that it sets, the knobs included, so that
a later search can move each variant's own. Everything else is shared. The existing kernel stays as
it is, as the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from engine.split.class_preferences import ClassGroup
from engine.split.languages.c_language import C
from engine.split.languages.call_graph import dependents, prerequisites
from engine.split.languages.dispatch import Branch
from engine.split.languages.language import Language
from engine.split.languages.syntax import Item
from engine.split.pieces import (
    add_dispatchers,
    copied,
    described,
    free_suffix,
    kernel_of,
    listed,
    new_names,
)
from harness.errors import Refused
from harness.formats.text import plain
from harness.search.space import knobs
from harness.trial_fields import Config

PLAIN_C = C()
MOST_VARIANTS = 6
"""Variants of one entry point, from all splits together."""


def split(source: str, groups: Sequence[ClassGroup], parameter_of: Mapping[str, str], *,
          start: Config, language: Language = PLAIN_C) -> str:
    """Return the source with a variant for each group of classes.

    `start` is the source's own configuration; a variant copies what differs from it. Raises Refused
    where a variant cannot be made, InputError for a source that cannot be parsed.
    """
    variants: dict[tuple[str, str], str] = {}
    for group in groups:
        source = _with_variant(language, source, group, parameter_of, start, variants)
    knobs.requirements(source, knobs.find(source, language=language.knobs))
    return source


def _with_variant(language: Language, source: str, group: ClassGroup,
                  parameter_of: Mapping[str, str], start: Config,
                  variants: dict[tuple[str, str], str]) -> str:
    """Return the source with one more variant; `variants` has the names of this split's variants,
    by kernel and knobs.
    """
    changed = {name: value for name, value in group.config.items() if value != start.get(name)}
    condition = group.condition.with_columns(parameter_of)
    points = [{parameter_of[name]: value for name, value in point.items()
               if name in parameter_of} for point in group.points]
    text, blocks = language.read(source)
    affected = {item.function for item in dependents(language.items(text), changed)}
    text, blocks = add_dispatchers(language, text, blocks, affected - {""}, condition)
    items = language.items(text)
    tuned = dependents(items, changed)
    item_of = {item.function: item for item in items if item.function}
    suffix = free_suffix(language.names(text))
    out, at, has_branch = [], 0, False
    name_of: dict[str, str] = {}
    values: Config = {}
    needed: frozenset[str] = frozenset()
    pending: list[Item] = []
    for block in sorted(blocks, key=lambda block: block.at):
        out.append(text[at:block.at])
        at = block.at
        kernel = kernel_of(block, points, group.classes)
        parts = prerequisites(items, kernel)
        copies = [item for item in parts if item in tuned]
        if item_of[kernel] in copies:
            if len(block.branches) >= MOST_VARIANTS:
                raise Refused(f"{block.entry} has {MOST_VARIANTS} variants already",
                              fix="remove those that gain least")
            names = {name for item in copies for name in item.defines}
            used = {name: value for name, value in changed.items() if name in names}
            key = kernel, described(used)
            if key not in variants:
                pending += [item for item in copies if not item.defines <= name_of.keys()]
                name_of |= new_names(names, suffix)
                values, variants[key] = {**values, **used}, name_of[kernel]
                needed |= frozenset[str]().union(*(item.defines for item in parts))
                out.append(language.comment(f"{variants[key]}: {kernel} with {described(used)}, "
                                            f"for {listed(group.classes)}"))
            ready = [item for item in pending if item.end <= at]
            pending = [item for item in pending if item.end > at]
            out.append(copied(language, text, ready, name_of, values, needed))
            branch = Branch(condition=condition, kernel=variants[key],
                            note=f"({described(used)}), {listed(group.classes)}")
            block = msgspec.structs.replace(block, branches=(branch, *block.branches))
            has_branch = True
        if block.branches:
            out.append(language.dispatcher(block, item_of[block.default]))
    if not has_branch:
        raise Refused(f"{', '.join(changed) or 'no knob'} does not change the kernel that "
                      f"{', '.join(plain(name, 60) for name in group.classes[:2])} takes")
    rest = text[at:]
    if pending:
        more = copied(language, text, pending, name_of, values, needed)
        rest = f"{rest.rstrip()}\n\n{more}".rstrip()
    return "".join([*out, rest + "\n" * (bool(rest) and not rest.endswith("\n"))])
