"""Tuning tables in JSON: lists of `triton.Config`s, and vLLM's configurations by batch size.

Accepted: a list `[{"BLOCK_M": 64, "num_warps": 4}, ...]`, where the constants may be in "kwargs",
or an object with such an entry per label, `{"16": {"BLOCK_SIZE_M": 16, ...}, ...}`, where a numeric
label is the batch size M. A table's
values become the choices of a source's knobs, and its entries the first trials of a search.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.errors import InputError
from harness.search.space import knob_proposals, knobs, triton_autotune
from harness.verdict import Value

LAUNCH = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Options of `triton.Config` itself; all others are constants of the kernel."""
MOST_STARTS = 16
FORM = 'write [{"BLOCK_M": 64, "num_warps": 4}] or {"16": {"BLOCK_M": 64, "num_warps": 4}}'
_CHOICES = re.compile(r"(kopt:\s*knob\s+\w+\s+in\s+\[)[^\]]*(\])")


@dataclass(frozen=True, kw_only=True)
class TableEntry:
    """One configuration; its label is a batch size or the name of a config class, "" in a list."""

    config: dict[str, Value]
    label: str = ""


def parse(text: str, where: str) -> tuple[TableEntry, ...]:
    """Return a table's entries. Raises InputError."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InputError(f"not JSON: {error}", where=where) from None
    if isinstance(value, dict) and not any(isinstance(each, dict) for each in value.values()):
        value = [value]
    labelled = value.items() if isinstance(value, dict) else \
        [("", each) for each in value] if isinstance(value, list) else []
    entries = tuple(TableEntry(label=label, config=_flat(each, where))
                    for label, each in labelled if label == "" or isinstance(each, dict))
    if not entries:
        raise InputError("no configuration is in the table", where=where, fix=FORM)
    return entries


def _flat(each: object, where: str) -> dict[str, Value]:
    if not isinstance(each, dict):
        raise InputError(f"{each!r} is not a configuration", where=where, fix=FORM)
    flat = {name: value for name, value in each.items() if name != "kwargs"}
    flat.update(each.get("kwargs") or {})
    bad = [name for name, value in flat.items() if not isinstance(value, int | float | str)]
    if bad:
        raise InputError(f"{bad[0]} has the value {flat[bad[0]]!r}", where=where,
                         fix="use a number or a word")
    return flat


def in_order(table: Sequence[TableEntry],
             sizes: Sequence[Mapping[str, int]]) -> tuple[TableEntry, ...]:
    """Return the entries without duplicates, first those for the config classes of these sizes.

    For a class it is the entry whose batch size is nearest to the class's, as in vLLM.
    """
    near = [min((each for each in table if each.label.isdigit()),
                key=lambda each: abs(int(each.label) - size), default=None)
            for size in map(batch_size, sizes) if size is not None]
    unique = {repr(sorted(each.config.items())): each
              for each in [*table, *filter(None, reversed(near))]}
    first = [repr(sorted(each.config.items())) for each in near if each is not None]
    return tuple(unique[key] for key in dict.fromkeys([*first, *unique]))


def batch_size(sizes: Mapping[str, int]) -> int | None:
    """Return a class's batch size, to which numeric labels refer: its M, else its first size."""
    return sizes.get("M", next(iter(sizes.values()), None))


def declare(source: str, table: Sequence[TableEntry], language: str) -> tuple[str, list[str]]:
    """Return the source with the table's values as choices, and the names that match no knob.

    If the source declares no knobs, declare those that kopt can propose and the table also has.
    """
    declared = knobs.find(source, language=language)
    if not declared:
        source = knob_proposals.declare(source, [
            each for each in knob_proposals.propose(source, language)
            if _choices(each.name, each.value, table)], language)
        declared = knobs.find(source, language=language)
    lines = triton_autotune.lines_of(source)
    for knob in declared:
        if knob.name.endswith(".config") or knob.reserved:
            continue
        choices = _choices(knob.name, knob.value, table)
        if choices:
            lines[knob.line - 1] = _CHOICES.sub(
                rf"\g<1>{', '.join(map(str, choices))}\g<2>", lines[knob.line - 1])
    source = "".join(lines)
    for knob in declared:
        if knob.name.endswith(".config"):
            texts = dict.fromkeys([str(knob.value), *map(config_text, (
                each.config for each in table)), *map(str, knob.choices)])
            source = triton_autotune.pinned(source, knob.name, ", ".join(texts))
    now = knobs.find(source, language=language)
    names = {name for each in table for name in each.config}
    has_list = any(knob.name.endswith(".config") for knob in now)
    unused = [] if has_list else sorted(
        name for name in names if not any(_is_name_of(knob.name, name) for knob in now))
    return source + "".join(_starts(table, now, language, source)), unused


def config_text(config: Mapping[str, Value]) -> str:
    """Return a configuration as Python: `triton.Config({'BLOCK_M': 64}, num_warps=4)`."""
    constants = {name: value for name, value in config.items() if name not in LAUNCH}
    options = [f"{name}={value!r}" for name, value in config.items() if name in LAUNCH]
    text = ", ".join([repr(constants), *options])
    return ast.unparse(ast.parse(f"triton.Config({text})"))


def of_text(text: str) -> dict[str, Value]:
    """Return a `triton.Config(...)` as a flat configuration; only literals are read."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    values: dict[str, Value] = {}
    for part in [*call.args[:1], *(word.value for word in call.keywords if word.arg == "kwargs")]:
        values.update(ast.literal_eval(part))
    for word in call.keywords:
        if word.arg in LAUNCH and isinstance(word.value, ast.Constant):
            values[word.arg] = word.value.value  # type: ignore[assignment]
    return values


def name_of(knob: str, names: Sequence[str]) -> str:
    """Return a knob's name in a table: one of `names`, else a launch option, else the knob's own.
    """
    return next((name for name in (*names, *LAUNCH) if _is_name_of(knob, name)), knob)


def _choices(knob: str, value: Value, table: Sequence[TableEntry]) -> tuple[int, ...]:
    """Return the table's values of a knob and the present value; () if the table has none."""
    values = {number for each in table for name, number in each.config.items()
              if _is_name_of(knob, name) and type(number) is int}
    return tuple(sorted({*values, value})) if values and type(value) is int else ()


def _is_name_of(knob: str, name: str) -> bool:
    """Return whether a table's name stands for a knob, also one called `<KERNEL>_<name>`."""
    upper = re.sub(r"_\d+$", "", knob).upper()
    return knob == name or upper == name.upper() or upper.endswith(f"_{name.upper()}")


def _starts(table: Sequence[TableEntry], declared: Sequence[knobs.Knob], language: str,
            source: str) -> Iterator[str]:
    """Yield the lines that declare the table's entries as starting points."""
    comment = "#" if language in ("triton", "python") else "//"
    lines = []
    for each in table:
        pairs = [f"{knob.name}={value}" for knob in declared for name, value in each.config.items()
                 if _is_name_of(knob.name, name) and knob.choice(value) is not None]
        if pairs:
            lines.append(f"{comment} kopt: start {' '.join(pairs)}  ({knob_proposals.MARK})\n")
    if lines and not source.endswith("\n"):
        yield "\n"
    yield from list(dict.fromkeys(lines))[:MOST_STARTS]
