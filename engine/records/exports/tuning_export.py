"""The kept knobs of each config class as a tuning table, in the format that kopt reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from engine.manifest.schema import Manifest
from engine.records.exports.kept_result import KeptResult
from engine.split.languages.detect import language_of
from engine.split.languages.syntax import prerequisites
from harness.errors import InputError, Refused
from harness.search.space import knobs, tuning_table
from harness.search.space.knobs import Knob
from harness.verdict import Value

Table = dict[str, dict[str, Value]]
_SUFFIX = re.compile(r"_v\d+$")
"""The suffix that kopt adds to the names in a variant of a kernel."""


def by_class(result: KeptResult, manifest: Manifest) -> Table:
    """Return each config class's configuration by class name, in the form of `triton.Config`.

    Raises Refused for a source without knobs, or with a dispatcher that tests what is not a size of
    the classes.
    """
    return {each.name: _config(result, manifest, each.shape) for each in result.target.classes}


def by_batch_size(result: KeptResult, manifest: Manifest) -> Table:
    """Return vLLM's table: the configuration of each batch size. Raises Refused."""
    table: Table = {}
    for config_class in sorted(result.target.classes,
                               key=lambda each: tuning_table.batch_size(each.shape) or 0):
        size = tuning_table.batch_size(config_class.shape)
        if size is None:
            raise Refused(f"the class {config_class.name} has no size, so no batch size",
                          fix="--format triton-config writes configurations by class")
        config = _config(result, manifest, config_class.shape)
        if table.setdefault(str(size), config) != config:
            raise Refused(f"the batch size {size} has several configurations",
                          fix="--format triton-config writes configurations by class")
    return table


def _config(result: KeptResult, manifest: Manifest, sizes: Mapping[str, int]) -> dict[str, Value]:
    """Return the configuration that runs for a class: its variant's, if the kernel is split."""
    declared = knobs.find(result.source, language=result.target.language)
    if not declared:
        raise Refused(f"{result.target.source} declares no knobs",
                      fix="kopt new --force proposes some")
    names, config = _names(result, manifest), dict[str, Value]()
    for knob in sorted(_used_knobs(result, declared, sizes), key=lambda knob: knob.line):
        if knob.name.endswith(".config"):
            config.update(tuning_table.of_text(str(knob.value)))
        else:
            config[tuning_table.name_of(_SUFFIX.sub("", knob.name), names)] = knob.value
    return config


def _used_knobs(result: KeptResult, declared: Sequence[Knob],
                sizes: Mapping[str, int]) -> list[Knob]:
    """Return the knobs of the kernels that run for some sizes; all knobs if nothing is split.

    Raises Refused where a dispatcher tests a parameter that is not a size of the class.
    """
    try:
        language = language_of(result.target)
        text, blocks = language.read(result.source)
        items = language.items(text) if blocks else ()
    except (Refused, InputError):
        return list(declared)
    unknown = {column for block in blocks for branch in block.branches
               for column in branch.condition.columns} - sizes.keys()
    if unknown:
        raise Refused(f"the kernel's dispatcher tests {sorted(unknown)[0]}, which is not a size of "
                      "the config classes", where=result.target.source,
                      fix="read the knobs of each kernel in the comment above its dispatcher")
    variants = {knob.name: _SUFFIX.sub("", knob.name) for knob in declared}
    used = {name for block in blocks for item in prerequisites(items, block.kernel_for(sizes))
            for name in item.defines}
    used_knobs = {variants[knob.name]: knob for knob in declared
                  if knob.name == variants[knob.name] or variants[knob.name] not in variants}
    used_knobs |= {variants[knob.name]: knob for knob in declared if knob.name in used}
    return list(used_knobs.values())


def _names(result: KeptResult, manifest: Manifest) -> list[str]:
    """Return the parameter names of the tuning table that the manifest names."""
    if not manifest.target.knobs:
        return []
    text = result.clone.read(result.row.base_commit, manifest.target.knobs).decode()
    return list(dict.fromkeys(
        name for each in tuning_table.parse(text, manifest.target.knobs)
        for name in each.config))
