"""A candidate that some classes gain by and others lose by, as a variant beside the kernel it was
made from: the old source, the candidate's changed functions under other names, and a dispatch.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.split.languages.c_dispatch import Branch, DispatchBlock
from engine.split.languages.c_source import Item
from engine.split.languages.call_graph import dependent, reached
from engine.split.languages.conditions import Condition, Point
from engine.split.languages.language import C, Language
from engine.split.pieces import (
    copied,
    free_suffix,
    kernel_of,
    listed,
    new_names,
    opened,
)
from harness.errors import Refused
from harness.search.space import knobs

PLAIN_C = C()


def merge(old: str, new: str, condition: Condition, points: Sequence[Point],
          classes: Sequence[str], language: Language = PLAIN_C) -> str:
    """Return the old source, which takes the new one's kernel where a condition holds.

    The condition and the points, rows of the classes, are by parameter. Raises Refused where the
    new source is no variant of the old one, InputError for what cannot be read.
    """
    text, blocks = language.read(old)
    theirs, their_blocks = language.read(new)
    if _plain(blocks) != _plain(their_blocks):
        raise Refused("it changes the dispatch itself")
    found = language.items(theirs)
    moved, headers = _changes(language, language.items(text), found)
    functions = {item.function for item in moved} - {""}
    if not functions:
        raise Refused("it changes no function")
    renamed = {item.function for item in language.items(text)}
    text, blocks = opened(language, text, blocks, functions & renamed, condition)
    mine = {item.function: item for item in language.items(text) if item.function}
    suffix = free_suffix(language.names(text) | language.names(theirs))
    out, at = [], 0
    name_of: dict[str, str] = {}
    for block in sorted(blocks, key=lambda one: one.at):
        out.append(text[at:block.at])
        at = block.at
        kernel = kernel_of(block, points, classes)
        their_kernel = kernel if block.branches else block.entry
        parts = reached(found, their_kernel)
        copies = [item for item in parts if item in moved and item.text.strip()]
        their = next((item for item in copies if item.function == their_kernel), None)
        if their is not None:
            _expect_alike(language, mine[kernel], their)
            fresh = [item for item in copies if not item.defines <= name_of.keys()]
            name_of |= new_names({name for item in copies for name in item.defines}, suffix)
            title = f"{name_of[their_kernel]}: another {their_kernel}, for {listed(classes)}"
            made_of = frozenset[str]().union(*(item.defines for item in parts))
            out += [language.comment(title), *headers,
                    copied(language, theirs, fresh, name_of, {}, made_of)]
            headers = []
            branch = Branch(condition=condition, kernel=name_of[their_kernel],
                            told=f"(a candidate's own), {listed(classes)}")
            block = msgspec.structs.replace(block, branches=(branch, *block.branches))
        if block.branches:
            out.append(language.dispatcher(block, mine[block.default]))
    if not name_of:
        raise Refused("it does not change the kernel that these classes take")
    done = "".join([*out, text[at:]])
    knobs.requirements(done, knobs.find(done, language=language.knobs))
    return done


def changed_names(old: str, new: str, language: Language = PLAIN_C) -> tuple[str, ...]:
    """Return what the new source defines otherwise than the old one, or besides."""
    moved, _ = _changes(language, *(language.items(language.read(one)[0]) for one in (old, new)))
    return tuple(sorted({name for item in moved for name in item.defines}))


def _changes(language: Language, mine: Sequence[Item], theirs: Sequence[Item],
             ) -> tuple[list[Item], list[str]]:
    """Return what of the new source differs or is made of what does, and the headers that it has
    besides. Raises Refused where the old kernel would get something of it too.
    """
    had = {item.text.strip() for item in mine}
    changed = [item for item in theirs if item.text.strip() not in had]
    headers = [item.text for item in changed if language.is_header(item)]
    if any(item.text.lstrip("# \t").startswith("pragma") for item in changed):
        raise Refused("it has a pragma for the whole file, which the old kernel would get too")
    return dependent(theirs, {name for item in changed for name in item.defines}), headers


def _expect_alike(language: Language, mine: Item, their: Item) -> None:
    one, other = language.entry_of(mine), language.entry_of(their)
    if one is None or other is None or " ".join(mine.params.split()) != " ".join(
            their.params.split()) or mine.head.split() != their.head.split():
        raise Refused(f"it changes what {their.function} is called with",
                      fix="leave the function's signature as it is")


def _plain(blocks: Sequence[DispatchBlock]) -> list[DispatchBlock]:
    return [msgspec.structs.replace(block, at=0) for block in blocks]
