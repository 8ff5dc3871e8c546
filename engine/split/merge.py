"""Takes a candidate as a variant for the classes that it speeds up.

The result is the old source, the candidate's changed functions under new names, and a dispatcher.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.split.languages.c_language import C
from engine.split.languages.call_graph import dependents, prerequisites
from engine.split.languages.conditions import Condition, Point
from engine.split.languages.dispatch import Branch, DispatchBlock
from engine.split.languages.language import Language
from engine.split.languages.syntax import Item
from engine.split.pieces import (
    add_dispatchers,
    copied,
    free_suffix,
    kernel_of,
    listed,
    new_names,
)
from harness.errors import Refused
from harness.search.space import knobs

PLAIN_C = C()


def merge(old: str, new: str, condition: Condition, points: Sequence[Point],
          classes: Sequence[str], language: Language = PLAIN_C) -> str:
    """Return the old source with a dispatcher that calls the new kernel where a condition holds.

    The condition and the points, which are rows of the classes, name parameters. Raises Refused
    where the new source is no variant of the old one, InputError where one cannot be parsed.
    """
    text, blocks = language.read(old)
    new_text, new_blocks = language.read(new)
    if _without_places(blocks) != _without_places(new_blocks):
        raise Refused("it changes the dispatch itself")
    new_items = language.items(new_text)
    changed, headers = _changes(language, language.items(text), new_items)
    functions = {item.function for item in changed} - {""}
    if not functions:
        raise Refused("it changes no function")
    existing = {item.function for item in language.items(text)}
    text, blocks = add_dispatchers(language, text, blocks, functions & existing, condition)
    item_of = {item.function: item for item in language.items(text) if item.function}
    suffix = free_suffix(language.names(text) | language.names(new_text))
    out, at = [], 0
    name_of: dict[str, str] = {}
    for block in sorted(blocks, key=lambda block: block.at):
        out.append(text[at:block.at])
        at = block.at
        kernel = kernel_of(block, points, classes)
        new_kernel = kernel if block.branches else block.entry
        parts = prerequisites(new_items, new_kernel)
        copies = [item for item in parts if item in changed and item.text.strip()]
        variant = next((item for item in copies if item.function == new_kernel), None)
        if variant is not None:
            _expect_same_signature(item_of[kernel], variant)
            fresh = [item for item in copies if not item.defines <= name_of.keys()]
            name_of |= new_names({name for item in copies for name in item.defines}, suffix)
            title = f"{name_of[new_kernel]}: another {new_kernel}, for {listed(classes)}"
            needed = frozenset[str]().union(*(item.defines for item in parts))
            out += [language.comment(title), *headers,
                    copied(language, new_text, fresh, name_of, {}, needed)]
            headers = []
            branch = Branch(condition=condition, kernel=name_of[new_kernel],
                            note=f"(a candidate's own), {listed(classes)}")
            block = msgspec.structs.replace(block, branches=(branch, *block.branches))
        if block.branches:
            out.append(language.dispatcher(block, item_of[block.default]))
    if not name_of:
        raise Refused("it does not change the kernel that these classes take")
    merged = "".join([*out, text[at:]])
    knobs.requirements(merged, knobs.find(merged, language=language.knobs))
    return merged


def changed_names(old: str, new: str, language: Language = PLAIN_C) -> tuple[str, ...]:
    """Return the names that the new source adds or defines differently."""
    changed, _ = _changes(language, *(language.items(language.read(source)[0])
                                      for source in (old, new)))
    return tuple(sorted({name for item in changed for name in item.defines}))


def _changes(language: Language, old: Sequence[Item], new: Sequence[Item],
             ) -> tuple[list[Item], list[str]]:
    """Return the new items that differ or depend on such items, and the headers that are new.

    Raises Refused where the old kernel would be affected too.
    """
    old_texts = {item.text.strip() for item in old}
    changed = [item for item in new if item.text.strip() not in old_texts]
    headers = [item.text for item in changed if language.is_header(item)]
    if any(item.text.lstrip("# \t").startswith("pragma") for item in changed):
        raise Refused("it has a pragma for the whole file, which would change the old kernel too")
    return dependents(new, {name for item in changed for name in item.defines}), headers


def _expect_same_signature(old: Item, new: Item) -> None:
    if old.entry is None or new.entry is None or old.params.split() != new.params.split() \
            or old.head.split() != new.head.split():
        raise Refused(f"it changes the signature of {new.function}",
                      fix="leave the function's signature as it is")


def _without_places(blocks: Sequence[DispatchBlock]) -> list[DispatchBlock]:
    return [msgspec.structs.replace(block, at=0) for block in blocks]
