"""A benchmark's source is the file that `edit` names, or the only one that it matches."""

from __future__ import annotations

import pytest

from engine.manifest import benchmark_target
from engine.manifest.schema import Manifest, TargetSpec
from harness.errors import InputError

FILES = ("Makefile", "bench/main.c", "src/heat.c", "src/heat.h")


def manifest(*edit: str) -> Manifest:
    return Manifest(target_op="heat", benchmark_command="./heat out.csv", edit=edit,
                    target=TargetSpec(kind="command", csv="out.csv", check="err <= 1",
                                      metrics=("time_ms",)))


@pytest.mark.parametrize(("edit", "source"), [
    (("src/*.c",), "src/heat.c"), (("src/*",), ""),
    (("src/*", "Makefile"), ""), (("src/heat.c", "src/*"), "src/heat.c")])
def test_source_is_the_file_that_edit_names_or_its_only_match(
        edit: tuple[str, ...], source: str) -> None:
    target = benchmark_target.sealed_target(manifest(*edit), FILES)
    assert (target.source, target.language) == (source, "c" if source else "")


def test_edit_that_matches_no_file_is_refused() -> None:
    with pytest.raises(InputError, match=r"edit: the project has no file src/heta.c or lib/\*.c"):
        benchmark_target.sealed_target(manifest("src/heta.c", "lib/*.c"), FILES)
