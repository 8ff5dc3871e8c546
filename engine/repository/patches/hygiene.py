"""Finds the files that are dropped from a candidate, and the changes that are violations."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from engine.globs import folder_named, matches, names_exactly
from engine.repository.patches.patch import Dropped, FilePatch, Patch
from harness.errors import InputError
from harness.formats.quantities import listed
from harness.formats.text import plain

ViolationKind = Literal[
    "frozen", "outside", "dependency", "start-up", "symlink", "submodule", "path", "executable",
    "mode",
]

NOT_IN_EDIT = "new file that `edit` does not include"
HELPER, OWN_HELPER = "helper file", "the project's own file, which `edit` does not include"
"""Reasons to drop a file such as Makefile, which tools write: a new one, and one of the project."""
MOST_BYTES = 255
"""Longest file name of most file systems."""
LONGEST_PATH, MOST_FOLDERS = 1024, 64
"""Bytes and nested folders of a path: programs of the target recurse, and systems limit paths."""
NAMED = 5
"""Limit of the files that a message names."""
LONGEST_NAME = 80
"""Characters of a file's name in a message."""
_DESCRIBED_FIRST = {"cache folder": 0, "build folder": 0, "binary": 1}


class Violation(msgspec.Struct, frozen=True):
    """A change that is a reject or, if `outside` of the edit globs, needs a person's approval."""

    kind: ViolationKind
    path: str
    detail: str


def clean(patch: Patch, edit: Sequence[str] = (), tracked: Collection[str] = ()) -> Patch:
    """Drop binary sections, build output, caches and helper files.

    By-products stay if `edit` names them exactly, or matches them and they are not new. With edit
    globs, other new files outside of them are dropped too (notes, test scripts). `tracked` are the
    folders of the base commit; see `by_product_kind`.
    """
    return patch.without(lambda file: _unwanted(file, edit, tracked))


def _unwanted(file: FilePatch, edit: Sequence[str], tracked: Collection[str]) -> str:
    if file.binary:
        return "binary"
    named = not edit or matches(file.path, edit)
    if names_exactly(file.path, edit) or (named and not file.is_new):
        return ""
    if reason := by_product_kind(file.path, folder_named(file.path, edit), tracked):
        return OWN_HELPER if reason == HELPER and not file.is_new else reason
    return NOT_IN_EDIT if file.is_new and not named else ""


def by_product_kind(path: str, below: str = "", tracked: Collection[str] = ()) -> str:
    """Return the kind of by-product that a path looks like, or "".

    A cache is recognised by its folder, never by a file's own name: cache_utils.py is source.
    Folders of `below`, which the manifest names, do not count; `tracked` folders of the project
    count only if nothing but programs writes a folder of that name.
    """
    *folders, name = path.removeprefix(below).split("/")
    at = below.rstrip("/")
    for before, folder in pairwise(["/" if below else "", *folders]):
        at = f"{at}/{folder}" if at else folder
        if folder in _NAMES["cache_folders"]:
            return "cache folder"
        if at in tracked:
            continue
        if folder.startswith(_NAMES["cache_prefixes"]) or "cache" in folder.lower():
            return "cache folder"
        if folder in _NAMES["build_folders"] or folder.endswith(".egg-info") or \
                (not before and folder in _NAMES["build_roots"]) or \
                (before, folder) == ("jit", "build"):
            return "build folder"
    if name.endswith(_NAMES["compiled"]) or _VERSIONED.fullmatch(name):
        return "compiled file"
    if name in _NAMES["helpers"] or _HELPER.fullmatch(name):
        return HELPER
    return ""


def _is_by_product(dropped: Dropped) -> bool:
    """Return whether a file is compiled or cached: runs and compilers write these anywhere."""
    *folders, _ = dropped.path.split("/")
    return dropped.reason == "compiled file" or \
        any(folder in _NAMES["cache_folders"] for folder in folders)


def describe_dropped(dropped: Iterable[Dropped]) -> str:
    """Name the files that were left out, and why; "" if only by-products of runs and builds were.

    The files that the worker most likely meant to keep come first: a candidate may fail for want
    of one.
    """
    named = sorted((file for file in dropped if not _is_by_product(file)),
                   key=lambda file: _DESCRIBED_FIRST.get(file.reason, 2))
    return listed([f"{plain(file.path, LONGEST_NAME)} ({file.reason})" for file in named], NAMED)


def why_empty(dropped: Collection[Dropped]) -> str:
    """Return why nothing is left of a change: the dropped files; "" if none was dropped."""
    named = describe_dropped(dropped) or ("compiled and cached files" if dropped else "")
    return named and f"every file of it was left out: {named}"


def notes_on_dropped(dropped: Collection[Dropped]) -> list[str]:
    """Return notes that name the dropped files, and what to add to the manifest for new ones."""
    paths = [plain(file.path, LONGEST_NAME) for file in dropped if file.reason == NOT_IN_EDIT]
    others = describe_dropped(file for file in dropped if file.reason != NOT_IN_EDIT)
    return [*([f"left out {others}"] if others else []), *([
        f"left out {listed(paths, NAMED)}: new, and not included in `edit`; to judge the "
        f"candidate with it, add it to `edit` in the manifest (edit: [..., {paths[0]}])"]
        if paths else [])]


def refuse_conflicts(patch: Patch) -> None:
    """Raise InputError if the patch adds the conflict markers of a failed merge to a file."""
    for file in patch.files:
        markers = 0
        for line in file.text.split("\n"):
            if line.startswith("+") and _CONFLICT[markers].match(line, 1):
                markers += 1
            if markers == len(_CONFLICT):
                raise InputError(f"it leaves conflict markers in {file.path!r}", where="patch",
                                 fix="resolve them first")


def violations(patch: Patch, edit: Sequence[str] = (),
               frozen: Iterable[str] = ()) -> tuple[Violation, ...]:
    """Return the violations of a patch, in the order of its sections."""
    frozen = tuple(frozen)
    return tuple(
        violation for file in patch.files
        for violation in (*_shape(file), *_place(file, edit, frozen))
    )


def path_fault(path: str) -> str:
    """Return why a candidate cannot have a file of this name, "" if it can."""
    parts = path.split("/")
    if not path or path.startswith("/") or "\0" in path or "\\" in path or any(
            part in ("", ".", "..") or _GIT_FOLDER.fullmatch(part) for part in parts):
        return "is not a valid path in the project"
    if max(map(_bytes, parts)) > MOST_BYTES or _bytes(path) > LONGEST_PATH \
            or len(parts) > MOST_FOLDERS:
        return "is too long"
    return ""


def _bytes(name: str) -> int:
    return len(name.encode(errors="surrogateescape"))


def _shape(file: FilePatch) -> Iterable[Violation]:
    for name in dict.fromkeys((file.old_path, file.new_path)):
        if name and (fault := path_fault(name)):
            yield Violation("path", name, fault)
    modes = {file.old_mode, file.new_mode} - {""}
    if "120000" in modes:
        yield Violation("symlink", file.path, "is a symbolic link")
    elif "160000" in modes:
        yield Violation("submodule", file.path, "is a submodule")
    elif not file.is_deleted and file.new_mode == "100755" and file.old_mode != "100755":
        yield Violation("executable", file.path, "is made executable")
    elif unusual := modes - {"100644", "100755", "100664"}:
        yield Violation("mode", file.path, f"has mode {', '.join(sorted(unusual))}")


def _place(file: FilePatch, edit: Sequence[str], frozen: Sequence[str]) -> Iterable[Violation]:
    for path in dict.fromkeys(name for name in (file.old_path, file.new_path) if name):
        name = path.rpartition("/")[2]
        if matches(path, frozen):
            yield Violation("frozen", path, "is frozen")
        elif _DEPENDENCIES.fullmatch(name):
            yield Violation("dependency", path, "declares dependencies")
        elif _START_UP.fullmatch(name):
            yield Violation("start-up", path, "changes how every program starts")
        elif edit and not matches(path, edit):
            yield Violation("outside", path, "matches no edit glob")


_NAMES = {kind: tuple(names) for kind, names in tomllib.loads(
    Path(__file__).with_name("by_products.toml").read_text()).items()}
_VERSIONED = re.compile(r".*\.so(\.\d+)+")
_HELPER = re.compile(
    r"test.*_harness\.py|.*_standalone(\.\w+)?|.*\.(bak|orig|rej|log|swp|tmp)|.*~|core(\.\d+)?"
)
_DEPENDENCIES = re.compile(
    r"requirements.*\.(txt|in)|constraints.*\.txt|pyproject\.toml|setup\.(py|cfg)|"
    r"environment.*\.ya?ml|Pipfile(\.lock)?|(poetry|uv|pdm|conda)\.lock|conda.*\.ya?ml|"
    r"\.gitmodules|Cargo\.(toml|lock)|package(-lock)?\.json", re.IGNORECASE,
)
_START_UP = re.compile(r"(sitecustomize|usercustomize)\.py|.*\.pth|\.env|\.gitattributes")
_CONFLICT = tuple(re.compile(mark + r"( .*)?\r?$") for mark in ("<{7}", "={7}", ">{7}"))
_GIT_FOLDER = re.compile(r"\.git|git~1|\.git[ .]+", re.IGNORECASE)
