"""Writes variants of a kernel for some config classes, and the dispatch to them.

`split` specialises a kernel by its knobs, `merge` takes a candidate as a variant. A variant copies
and renames all that it changes, its knobs included, so that a later search can move them. The rest
is shared; the existing kernel stays as the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from engine.split import pieces
from engine.split.class_preferences import ClassGroup
from engine.split.languages.c_language import C
from engine.split.languages.conditions import Condition, Point
from engine.split.languages.language import DispatchBlock, Language
from engine.split.languages.syntax import Item, dependents, prerequisites
from engine.split.pieces import Variant, copied, described, listed
from harness.errors import Refused
from harness.formats.text import plain
from harness.search.space import knobs
from harness.verdict import Config

PLAIN_C = C()
MOST_VARIANTS = 6
"""Limit of the variants of one entry point, from all splits together."""


def split(source: str, groups: Sequence[ClassGroup], parameter_of: Mapping[str, str], *,
          start: Config, language: Language = PLAIN_C) -> str:
    """Return the source with a variant for each group of classes.

    `start` is the source's own configuration; a variant copies what depends on knobs with other
    values. Raises Refused where a variant cannot be made, InputError for a source that cannot be
    parsed.
    """
    variants: dict[tuple[str, str], str] = {}
    for group in groups:
        source = _with_variant(language, source, group, parameter_of, start, variants)
    return _checked(source, language)


def merge(old: str, new: str, condition: Condition, points: Sequence[Point],
          classes: Sequence[str], language: Language = PLAIN_C) -> str:
    """Return the old source with a dispatcher that calls the new kernel where a condition holds.

    The condition and the points, which are rows of the classes, name parameters. Raises Refused
    where the new source is not a variant of the old one, InputError where one cannot be parsed.
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
    text, blocks = pieces.add_dispatchers(language, text, blocks, functions & existing, condition)
    item_of = {item.function: item for item in language.items(text)}
    suffix = pieces.free_suffix(language.names(text) | language.names(new_text))
    name_of: dict[str, str] = {}

    def variant_of(block: DispatchBlock, kernel: str) -> Variant | None:
        new_kernel = kernel if block.branches else block.entry
        parts = prerequisites(new_items, new_kernel)
        copies = [item for item in parts if item in changed and item.text.strip()]
        variant = next((item for item in copies if item.function == new_kernel), None)
        if variant is None:
            return None
        _expect_same_signature(item_of[kernel], variant)
        fresh = [item for item in copies if not item.defines <= name_of.keys()]
        more = headers if not name_of else []
        name_of.update(pieces.new_names({name for item in copies for name in item.defines}, suffix))
        title = f"{name_of[new_kernel]}: another {new_kernel}, for {listed(classes)}"
        needed = frozenset[str]().union(*(item.defines for item in parts))
        code = copied(language, new_text, fresh, name_of, {}, needed)
        return Variant("".join([language.comment(title), *more, code]), name_of[new_kernel],
                       f"(a candidate's own), {listed(classes)}")

    head, rest = pieces.with_variants(language, text, blocks, condition, points, classes,
                                      variant_of)
    if not name_of:
        raise Refused("it does not change the kernel that these classes take")
    return _checked(head + rest, language)


def changed_names(old: str, new: str, language: Language = PLAIN_C) -> tuple[str, ...]:
    """Return the names that the new source adds or defines differently, and all that use them."""
    changed, _ = _changes(language, *(language.items(language.read(source)[0])
                                      for source in (old, new)))
    return tuple(sorted({name for item in changed for name in item.defines}))


def _with_variant(language: Language, source: str, group: ClassGroup,
                  parameter_of: Mapping[str, str], start: Config,
                  variants: dict[tuple[str, str], str]) -> str:
    """Return the source with one more variant; `variants` has those made, by kernel and knobs."""
    changed = {name: value for name, value in group.config.items() if value != start.get(name)}
    condition = group.condition.with_columns(parameter_of)
    points = [{parameter_of[name]: value for name, value in point.items()
               if name in parameter_of} for point in group.points]
    text, blocks = language.read(source)
    affected = {item.function for item in dependents(language.items(text), changed)}
    text, blocks = pieces.add_dispatchers(language, text, blocks, affected - {""}, condition)
    items = language.items(text)
    tuned = dependents(items, changed)
    suffix = pieces.free_suffix(language.names(text))
    name_of: dict[str, str] = {}
    values: Config = {}
    needed: set[str] = set()
    pending: list[Item] = []
    has_variant = False

    def variant_of(block: DispatchBlock, kernel: str) -> Variant | None:
        nonlocal has_variant
        parts = prerequisites(items, kernel)
        copies = [item for item in parts if item in tuned]
        if kernel not in {item.function for item in copies}:
            return None
        if len(block.branches) >= MOST_VARIANTS:
            raise Refused(f"{block.entry} already has {MOST_VARIANTS} variants",
                          fix="remove those that gain least")
        has_variant, title = True, ""
        names = {name for item in copies for name in item.defines}
        used = {name: value for name, value in changed.items() if name in names}
        key = kernel, described(used)
        if key not in variants:
            pending.extend(item for item in copies if not item.defines <= name_of.keys())
            name_of.update(pieces.new_names(names, suffix))
            values.update(used)
            variants[key] = name_of[kernel]
            needed.update(*(item.defines for item in parts))
            title = language.comment(f"{variants[key]}: {kernel} with {described(used)}, "
                                     f"for {listed(group.classes)}")
        ready = [item for item in pending if item.end <= block.at]
        pending[:] = [item for item in pending if item.end > block.at]
        code = copied(language, text, ready, name_of, values, frozenset(needed))
        return Variant(title + code, variants[key], f"({described(used)}), {listed(group.classes)}")

    head, rest = pieces.with_variants(language, text, blocks, condition, points, group.classes,
                                      variant_of)
    if not has_variant:
        raise Refused(f"{', '.join(changed) or 'the configuration'} does not change the kernel "
                      f"of {', '.join(plain(name, 60) for name in group.classes[:2])}")
    if pending:
        more = copied(language, text, pending, name_of, values, frozenset(needed))
        rest = f"{rest.rstrip()}\n\n{more}".rstrip()
    return head + rest + "\n" * (bool(rest) and not rest.endswith("\n"))


def _checked(source: str, language: Language) -> str:
    """Return a source whose knobs and requirements are valid. Raises InputError."""
    knobs.requirements(source, knobs.find(source, language=language.knobs))
    return source


def _changes(language: Language, old: Sequence[Item], new: Sequence[Item],
             ) -> tuple[list[Item], list[str]]:
    """Return the items that are changed or use changed ones, and new headers.

    Raises Refused where the old kernel would change too.
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
