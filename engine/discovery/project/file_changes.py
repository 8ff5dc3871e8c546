"""Finds the transformations that apply to the editable files of a project besides its first source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from engine.discovery.project import kernel_source, sources
from engine.globs import matches
from engine.routing import source_language
from engine.transformations import transformation_registry
from engine.transformations.transformation_registry import ApplicableChange

MOST_FILES = 8
"""Most files to which transformations are applied: the first ones, shallow folders before deep."""
SUFFIXES = (*kernel_source.SOURCES, ".py")


def of_files(tree: Path, edit: Sequence[str],
             left_out: Collection[str] = ()) -> tuple[ApplicableChange, ...]:
    """Return the transformations of the sources that the globs `edit` match, with their paths."""
    return tuple(change for changes in list(_by_file(tree, edit, left_out))[:MOST_FILES]
                 for change in changes)


def _by_file(tree: Path, edit: Sequence[str],
             left_out: Collection[str]) -> Iterator[list[ApplicableChange]]:
    for file in sources.project_files(tree):
        path = file.relative_to(tree).as_posix()
        if file.suffix in SUFFIXES and matches(path, edit) and path not in left_out:
            text = sources.read_source(file)
            changes = [msgspec.structs.replace(change, path=path, what=f"{path}: {change.what}")
                       for change in transformation_registry.applicable(
                           text, source_language.detect(text, path))]
            if changes:
                yield changes
