"""Applies a submitted patch to a tree, by a ladder of increasingly tolerant ways.

The rungs: plain; with its paths normalised to the tree's; without new files that exist; 3-way. No
rung leaves conflict markers: nothing is merged in a working tree, and a patch that contains markers
is refused.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from engine.repository.clone import Change, Clone, between
from engine.repository.git import Git, GitFailed
from engine.repository.patches.hygiene import LONGEST_NAME, path_fault, refuse_conflicts, why_empty
from engine.repository.patches.patch import FilePatch, Patch, quote, strip_prefix
from harness.errors import EnvironmentFault, InputError
from harness.formats.text import plain


def apply(clone: Clone, base: str, patch: Patch, sibling: Path | None = None) -> Change:
    """Apply a patch to a commit or tree; raises InputError if no rung applies.

    Return the change in canonical form, falsy if the base contains it already. `sibling` is a
    repository that may have the blobs that the patch was made from: a merge needs them.
    """
    if not patch:
        raise InputError(why_empty(patch.dropped) or "it contains no diff", where="patch")
    refuse_conflicts(patch)
    base_tree, complaint = clone.tree_of(base), ""
    for attempt, three_way in _ladder(patch, set(clone.files(base))):
        if three_way and sibling is not None:
            _borrow(clone, attempt, sibling)
        try:
            tree = _apply(clone, base_tree, attempt, three_way=three_way)
        except GitFailed as error:
            complaint = complaint or error.what
            continue
        return between(clone, base_tree, tree, attempt.dropped)
    raise InputError(f"the patch does not apply to {base[:12]}: {complaint}", where="patch",
                     fix="make it from the current best commit")


def _borrow(clone: Clone, patch: Patch, sibling: Path) -> None:
    """Copy the blobs that a patch was made from into the clone, where only a sibling has them.

    Copies, not an alternate: the clone must be complete without the other repository.
    """
    for file in patch.files:
        source = _INDEX.search(file.text)
        if source is None or clone.git.find(f"{source[1]}^{{blob}}"):
            continue
        with contextlib.suppress(GitFailed, EnvironmentFault):
            blob = Git(None).run("cat-file", "blob", source[1], cwd=sibling)
            clone.git.run("hash-object", "-w", "-t", "blob", "--stdin", stdin=blob)


_INDEX = re.compile(r"^index ([0-9a-f]{7,64})\.\.[0-9a-f]+", re.MULTILINE)


def _apply(clone: Clone, base_tree: str, patch: Patch, *, three_way: bool) -> str:
    if not patch:
        return base_tree
    how = ("--3way",) if three_way else ()
    data = patch.data if patch.data.endswith(b"\n") else patch.data + b"\n"
    with clone.index(base_tree) as index:
        clone.git.run("apply", "--cached", "--whitespace=nowarn", *how, "-", stdin=data,
                      index=index)
        return clone.write_tree(index)


def _ladder(patch: Patch, tree: set[str]) -> Iterator[tuple[Patch, bool]]:
    """Yield the forms of a patch to try, and whether each is tried 3-way."""
    if all(_is_plain(file) for file in patch.files):
        yield patch, False
    normal = _normalised(patch, tree)
    yield normal, False
    fresh = normal.without(
        lambda file: "new file that exists" if file.is_new and file.new_path in tree else "")
    if len(fresh.files) < len(normal.files):
        yield fresh, False
    yield fresh, True


def _is_plain(file: FilePatch) -> bool:
    """Return whether the headers have the usual prefixes."""
    prefixed = {strip_prefix(name) for name in file.names if strip_prefix(name) != name}
    return {file.old_path, file.new_path} - {""} <= prefixed


def _normalised(patch: Patch, tree: set[str]) -> Patch:
    """Give each section the path that its file has in the tree."""
    stems = {_prefix_in_patch(file, tree) for file in patch.files if not file.is_new} - {None}
    stem = stems.pop() if len(stems) == 1 else ""
    return msgspec.structs.replace(
        patch, preamble="", files=tuple(_relocated(file, tree, stem or "") for file in patch.files)
    )


def _prefix_in_patch(file: FilePatch, tree: set[str]) -> str | None:
    """Return what precedes the tree's path in a section's path; None if no tail is in the tree."""
    home = _path_in_tree(file.old_path, tree)
    return file.old_path[: -len(home)] if home and file.old_path.endswith(home) else None


def _path_in_tree(path: str, tree: set[str]) -> str:
    """Return the tree's path for a patch's: the same, its tail, or the only longer one; else ""."""
    parts = path.split("/")
    if ".." in parts:
        return ""
    for n in range(len(parts)):
        if (tail := "/".join(parts[n:])) in tree:
            return tail
    longer = [name for name in tree if name.endswith(f"/{path}")]
    return longer[0] if len(longer) == 1 else ""


def _relocated(file: FilePatch, tree: set[str], stem: str) -> FilePatch:
    old, new = file.old_path, file.new_path
    if old and new and not file.renamed:
        old = new = _path_in_tree(old, tree) or _path_in_tree(new, tree) or new
    elif old:
        old, new = _path_in_tree(old, tree) or old, new.removeprefix(stem)
    else:
        new = new.removeprefix(stem)
    for path in (old, new):
        if path and (fault := path_fault(path)):
            raise InputError(f"{plain(path, LONGEST_NAME)!r} {fault}", where="patch")
    return msgspec.structs.replace(file, text=_with_names(file, old, new), old_path=old,
                                   new_path=new)


def _with_names(file: FilePatch, old: str, new: str) -> str:
    """Return a section's text with other names in its headers."""
    before, after = old or new, new or old
    headers = {
        "diff --git ": f"diff --git {quote('a/' + before)} {quote('b/' + after)}",
        "--- ": f"--- {quote('a/' + old)}" if old else "--- /dev/null",
        "+++ ": f"+++ {quote('b/' + new)}" if new else "+++ /dev/null",
        "rename from ": f"rename from {quote(before)}",
        "rename to ": f"rename to {quote(after)}",
        "copy from ": f"copy from {quote(before)}",
        "copy to ": f"copy to {quote(after)}",
    }
    lines = file.text.split("\n")
    for n, line in enumerate(lines):
        if line.startswith(("@@ ", "GIT binary patch", "Binary files ")):
            break
        for start, header in headers.items():
            if line.startswith(start):
                lines[n] = header
    return "\n".join(lines)
