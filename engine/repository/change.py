"""A candidate's content: a tree on a base, and the patch that is derived from both.

Base and tree decide: the verdict checks the tree out and the commit is made from it. The patch is
for people, for files and for rules that look at single files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from engine.repository.clone import Clone
from engine.repository.patches.hygiene import clean
from engine.repository.patches.patch import Dropped, FilePatch, Patch
from harness.errors import InputError


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A tree made from a base tree. Falsy if only dropped files differ."""

    base_tree: str
    tree: str
    patch: Patch

    def __bool__(self) -> bool:
        return bool(self.patch)


def between(clone: Clone, base: str, tree: str, dropped: Iterable[Dropped] = ()) -> Change:
    """Return the change from a base (commit or tree) to a tree; `dropped` is noted in its patch."""
    base_tree = clone.tree_of(base)
    patch = clone.diff(base_tree, tree)
    return Change(base_tree=base_tree, tree=tree,
                  patch=msgspec.structs.replace(patch, dropped=tuple(dropped)))


def cleaned(clone: Clone, change: Change, edit: Sequence[str]) -> Change:
    """Drop from the tree what a candidate must not bring; see `hygiene.clean`."""
    return narrowed(clone, change, clean(change.patch, edit, clone.folders(change.base_tree)))


def narrowed(clone: Clone, change: Change, patch: Patch) -> Change:
    """Reduce a change to some of its patch's sections: all other files are the base's.

    Raises InputError if the rest is no valid tree, such as a file below a path that the base has
    as a file.
    """
    rest = [file for file in change.patch.files if file not in patch.files]
    if not rest:
        return msgspec.structs.replace(change, patch=patch)
    with clone.index(change.tree) as index:
        clone.git.run("update-index", "-z", "--index-info", index=index,
                      stdin="".join(_restored(clone, change.base_tree, rest)).encode(
                          errors="surrogateescape"))
        tree = clone.git.line("write-tree", index=index)
    reduced = between(clone, change.base_tree, tree, patch.dropped)
    if reduced.patch.files != patch.files:
        raise InputError(f"the change is incomplete without {rest[0].path!r}", where="patch")
    return reduced


def _restored(clone: Clone, base_tree: str, files: Iterable[FilePatch]) -> Iterator[str]:
    """Yield lines for `git update-index --index-info` that give files the base's content."""
    entries = clone.entries(base_tree)
    for path in dict.fromkeys(name for file in files for name in (file.old_path, file.new_path)):
        if path:
            entry = entries.get(path)
            yield f"{entry.mode} {entry.id}\t{path}\0" if entry is not None else \
                f"0 {'0' * len(base_tree)}\t{path}\0"
