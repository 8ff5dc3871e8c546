"""Kernels of a split that no measured class takes are removed; the results stay the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.split.languages.c_language import C
from engine.split.unused_variants import without_unused
from harness.search.space import knobs
from tests.support.searches import split_case
from tests.support.searches.split_case import built, divided, group, tile_taken

LONG = group("context >= 1024", {"context": 1024, "heads": 1}, "context=1024", TILE=256)
LONGER = group("context >= 512", {"context": 512, "heads": 1}, TILE=4)
SHORT = group("context <= 16", {"context": 8, "heads": 1}, "context=8", TILE=4)
BOTH_ENDS = [{"context": size, "heads": 1} for size in (8, 16, 1024, 4096, 8192)]


def test_unused_default_is_replaced_by_the_most_used_variant(tmp_path: Path) -> None:
    """The naive first kernel and its knob are gone; sizes between the classes take the default."""
    source = without_unused(divided(split_case.KERNEL, LONG, SHORT), BOTH_ENDS, C())
    assert "total_base" not in source and "TILE " not in source.replace("TILE_v", "")
    library = built(tmp_path, source)
    taken = {size: tile_taken(library, size, 3) for size in (8, 16, 17, 64, 1024, 4096)}
    assert taken == {8: 4, 16: 4, 17: 256, 64: 256, 1024: 256, 4096: 256}
    declared = knobs.find(source, language="c")
    assert {knob.name for knob in declared} == {"TILE_v1", "TILE_v2", "START"}
    assert knobs.requirements(source, declared)
    assert divided(source, group("context == 64", {"context": 64, "heads": 1}, TILE_v1=32))


def test_variant_that_a_newer_one_covers_is_removed(tmp_path: Path) -> None:
    points = [{"context": size, "heads": 1} for size in (8, 1024, 4096)]
    source = without_unused(divided(divided(split_case.KERNEL, LONG), LONGER), points, C())
    assert "_v1" not in source and "total_v2" in source and "total_base" in source
    library = built(tmp_path, source)
    assert {size: tile_taken(library, size, 1) for size in (8, 512, 4096)} == {
        8: 32, 512: 4, 4096: 4}


def test_only_kernel_that_is_left_becomes_the_entry(tmp_path: Path) -> None:
    source = without_unused(divided(split_case.KERNEL, LONG), BOTH_ENDS[2:], C())
    assert "kopt split" not in source and "total_v1" not in source
    assert tile_taken(built(tmp_path, source), 8, 3) == 256


@pytest.mark.parametrize("points", [[{"context": 8}, {"context": 1024}], [{"heads": 1}], []])
def test_split_without_unused_kernels_is_unchanged(points: list[dict[str, int]]) -> None:
    source = divided(split_case.KERNEL, LONG)
    assert without_unused(source, points, C()) == source
