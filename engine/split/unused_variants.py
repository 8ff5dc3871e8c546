"""Removes the kernels of a split that no measured class takes.

Every variant computed correct results in all classes when it was judged as a whole kernel, so any
may become the default. If the default serves no class, the variant that serves the most classes
takes its place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from engine.split.languages.conditions import Point
from engine.split.languages.language import DispatchBlock, Language
from engine.split.pieces import stem
from harness.search.space import knobs


def without_unused(source: str, points: Sequence[Point], language: Language) -> str:
    """Return a source whose dispatchers name only kernels that some of the points take.

    The points are rows of all classes, with values by parameter; dispatchers that test another
    parameter are left alone. Raises Refused, InputError for a source that cannot be read.
    """
    text, blocks = language.read(source)
    fewer = [_reduced(block, points) for block in blocks]
    if fewer == list(blocks):
        return source
    unused = {kernel for block, now in zip(blocks, fewer, strict=True)
              for kernel in block.kernels - now.kernels}
    item_of = {item.function: item for item in language.items(text)}
    out, at, names = [], 0, {}
    for block in sorted(fewer, key=lambda block: block.at):
        out.append(text[at:block.at])
        at = block.at
        if block.branches:
            out.append(language.dispatcher(block, item_of[block.default]))
        else:  # one kernel is left: it is the entry again
            names[block.default] = block.entry
    return _without(unused, "".join([*out, text[at:]]), names, language)


def _reduced(block: DispatchBlock, points: Sequence[Point]) -> DispatchBlock:
    """Return a dispatcher without the kernels that no point takes."""
    if not points or not all(block.columns <= point.keys() for point in points):
        return block
    used = [block.branch_for(point) for point in points]
    branches = tuple(branch for branch in block.branches if branch in used)
    default = block.default
    if None not in used:
        general = [branch for place, branch in enumerate(branches) if not any(
            later.condition.holds(point) for point, chosen in zip(points, used, strict=True)
            if chosen == branch for later in branches[place + 1:])]
        best = max(reversed(general), key=used.count)
        default, branches = best.kernel, tuple(branch for branch in branches if branch != best)
    return msgspec.structs.replace(block, branches=branches, default=default)


def _without(unused: set[str], source: str, names: dict[str, str], language: Language) -> str:
    """Return a source without some functions and what only they use, with names changed.

    Of what they use, only knobs, copies, macros and static functions are removed: another file may
    use the rest.
    """
    items = language.items(source)
    removed = [item for item in items if item.function in unused]
    declared_knobs = {knob.name for knob in knobs.find(source, language=language.knobs)}
    while more := [item for item in items if item not in removed and item.defines
                   and (item.static or item.text.lstrip().startswith("#define") or all(
                       stem(name) != name or name in declared_knobs for name in item.defines))
                   and not item.defines & names.keys()
                   and any(item.defines & other.uses for other in removed)
                   and not any(item.defines & other.uses for other in items
                               if other not in removed and other != item)]:
        removed += more
    dead = {name for item in removed for name in item.defines}
    parts, at = [], 0
    for item in sorted(removed, key=lambda item: item.begin):
        parts.append(source[at:item.begin])
        at = item.end
    text = "".join([*parts, source[at:]])
    dead_names = "|".join(map(re.escape, sorted(dead))) or "(?!)"
    comment = rf"^(?:/\*|#|//) (?:(?:{dead_names}): .*|kopt: require .*\b(?:{dead_names})\b.*)\n"
    text = re.sub(comment, "", text, flags=re.MULTILINE)
    text = re.sub(r"\n{4,}", "\n\n\n", text)
    new_names = {**{name: stem(name) for name in dead}, **names}  # removed names, in comments
    return re.sub(r"\w+", lambda word: new_names.get(word[0], word[0]), text)
