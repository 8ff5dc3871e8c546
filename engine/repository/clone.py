"""The engine's own copy of a project: commits, trees and patches, without a working tree.

Only the engine writes this git directory. Slots work in repositories of their own that borrow its
objects, so their configuration, hooks and references are never read here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import msgspec

from engine.repository.git import OBJECT_ID, Git, GitFailed, init
from engine.repository.patches.hygiene import clean
from engine.repository.patches.patch import Dropped, FilePatch, Patch, parse
from harness.errors import InputError

DIFF = ("--patch", "--binary", "--full-index", "--no-renames", "--no-color", "--no-ext-diff",
        "--no-textconv", "--unified=3", "--src-prefix=a/", "--dst-prefix=b/")

BASE_REF = "refs/kopt/base"
MOST_CACHED_TREES = 8
RECORDS = ".kopt"
"""Folder in kept commits with each campaign's records; a candidate never contains it."""

_CONFIG = """\
[core]
	repositoryformatversion = 0
	filemode = true
	bare = true
	logAllRefUpdates = true
	fsync = committed,reference
	filesRefLockTimeout = 5000
[fetch]
	unpackLimit = 1
"""


class TreeEntry(msgspec.Struct, frozen=True):
    """One file of a tree; `size` in bytes, 0 for a submodule."""

    mode: str
    id: str
    size: int


class Clone:
    """A bare git directory. Its methods may be called from several threads."""

    def __init__(self, git_dir: Path, git: Git | None = None) -> None:
        self.git_dir, self.git = git_dir, git or Git(git_dir)
        self._entries: dict[str, dict[str, TreeEntry]] = {}
        self._trees: dict[str, str] = {}
        self._commits = set[str]()

    def resolve(self, name: str) -> str:
        """Return the full id of a commit; raises InputError if there is no such commit."""
        if name in self._commits:
            return name
        commit = self._object_id(name, "^{commit}")
        self._commits.add(commit)
        return commit

    def commit_at(self, reference: str) -> str:
        """Return the commit of a reference of kopt's own; raises InputError if there is none."""
        return self._object_id(reference, "")

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit, or a tree itself."""
        if commit.startswith("refs/"):
            commit = self.commit_at(commit)
        tree = self._trees.get(commit) or self._object_id(commit, "^{tree}")
        if OBJECT_ID.fullmatch(commit):
            self._trees[commit] = tree
        return tree

    def write_tree(self, index: Path) -> str:
        """Write the tree of an index and return its id."""
        tree = self.git.line("write-tree", index=index)
        return self._trees.setdefault(tree, tree)

    def _object_id(self, name: str, kind: str) -> str:
        if not name or not (identity := self.git.find(name + kind)):
            raise InputError(f"no commit {name!r}", where=str(self.git_dir))
        return identity

    def files(self, commit: str) -> list[str]:
        """Return the paths of all files of a commit or tree."""
        return list(self.entries(commit))

    def entries(self, commit: str) -> dict[str, TreeEntry]:
        """Return what a commit or tree has under each path; the last few trees are cached."""
        tree = self.tree_of(commit)
        if (cached := self._entries.get(tree)) is not None:
            return cached
        entries: dict[str, TreeEntry] = {}
        listed = self.git.run("ls-tree", "-r", "-z", "--long", tree)
        for line in listed.decode(errors="surrogateescape").split("\0")[:-1]:
            head, _, path = line.partition("\t")
            mode, _, blob, size = head.split()
            entries[path] = TreeEntry(mode, blob, 0 if size == "-" else int(size))
        if len(self._entries) >= MOST_CACHED_TREES:
            self._entries = {}
        self._entries[tree] = entries
        return entries

    def folders(self, commit: str) -> frozenset[str]:
        """Return the folders of a commit or tree."""
        parents = {path.rpartition("/")[0] for path in self.entries(commit)} - {""}
        return frozenset(str(above) for folder in parents
                         for above in PurePosixPath(f"{folder}/x").parents) - {"."}

    def read(self, commit: str, path: str) -> bytes:
        """Return a file's contents in a commit; raises InputError if there is no such file."""
        try:
            return self.git.run("cat-file", "blob", f"{self.tree_of(commit)}:{path}")
        except GitFailed as error:
            raise InputError(f"there is no file {path!r} in commit {commit[:12]}") from error

    def log(self, newest: str, oldest: str) -> list[str]:
        """Return the commits after `oldest` up to `newest`, oldest first."""
        return self.git.line("rev-list", "--reverse", f"{oldest}..{newest}").split()

    def diff(self, before: str, after: str) -> Patch:
        """Return the patch between two commits or trees, in the form that kopt stores."""
        return parse(self.git.run("diff-tree", "-r", *DIFF, self.tree_of(before),
                                  self.tree_of(after)))

    def import_tree(self, other: Clone, tree: str, known: str) -> str:
        """Copy a tree of another repository, except the objects of its commit `known`, if given."""
        other.git.run("pack-objects", "--quiet", "--revs",
                      str(self.git_dir / "objects" / "pack" / "pack"),
                      stdin=f"{tree}\n{f'^{known}' if known else ''}\n".encode())
        return tree

    def commit_tree(self, tree: str, parent: str, message: str) -> str:
        """Make a commit that depends only on its arguments; the same call gives the same id.

        Author and committer are kopt; both dates are one second after the parent's commit date.
        """
        date = int(self.git.line("log", "-1", "--format=%ct", parent)) + 1
        stamps = {name: f"{date} +0000" for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE")}
        text = "".join(c if c == "\n" or c.isprintable() else " " for c in message).strip()
        commit = self.git.line("commit-tree", tree, "-p", parent, env=stamps,
                               stdin=f"{text}\n".encode(errors="replace"))
        self._commits.add(commit)
        return commit

    def with_files(self, commit: str, files: Mapping[str, bytes]) -> str:
        """Return a commit's tree with some files added or replaced."""
        with self.index(commit) as index:
            self._add(index, files, self.entries(commit))
            return self.write_tree(index)

    def with_records(self, tree: str, before: str, files: Mapping[str, bytes]) -> str:
        """Return a tree with the records of the commit `before`, some added or replaced."""
        with self.index(tree) as index:
            if records := self.git.find(f"{before}:{RECORDS}/"):
                self.git.run("read-tree", "-i", f"--prefix={RECORDS}/", records, index=index)
            self._add(index, files, {})
            return self.write_tree(index)

    def _add(self, index: Path, files: Mapping[str, bytes],
             known: Mapping[str, TreeEntry]) -> None:
        """Add files to an index; known ones stay executable, and links become files."""
        blobs = {data: self.git.line("hash-object", "-w", "-t", "blob", "--stdin", stdin=data)
                 for data in set(files.values())}
        modes = {path: known[path].mode if path in known and known[path].mode == "100755"
                 else "100644" for path in files}
        listed = "".join(f"{modes[path]} {blobs[data]}\t{path}\0" for path, data in files.items())
        self.git.run("update-index", "-z", "--index-info", index=index,
                     stdin=listed.encode(errors="surrogateescape"))

    def checkout_tree(self, commit: str, directory: Path) -> None:
        """Write a commit's files into an empty or new directory, without any .git."""
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise FileExistsError(f"{directory} is not empty")
        with self.index(commit) as index:
            self.git.run("checkout-index", "--all", "--quiet", index=index, work_tree=directory)

    @contextmanager
    def index(self, commit: str = "") -> Iterator[Path]:
        """Yield a temporary index, filled from a commit if one is given."""
        folder = self.git_dir / "kopt"
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="index-") as temporary:
            index = Path(temporary) / "index"
            if commit:
                self.git.run("read-tree", self.tree_of(commit), index=index)
            yield index


def make(git_dir: Path, project: Path, *, object_format: str, branch: str) -> Clone:
    """Copy the project's HEAD and its history; the directory appears when it is complete.

    Shares nothing with the user's repository, not even hard links. Creates `branch` and `BASE_REF`
    at the copied commit. Raises InputError if git refuses the branch's name.
    """
    unfinished = git_dir.with_name(git_dir.name + ".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    git_dir.parent.mkdir(parents=True, exist_ok=True)
    try:
        git = init(unfinished, object_format=object_format, branch=branch, bare=True)
    except GitFailed as error:
        if "invalid initial branch name" not in error.what:
            raise
        raise InputError(f"git refuses {branch!r} as the name of a branch",
                         fix="use letters, digits, - and _ in the campaign's name") from error
    with (unfinished / "config").open("a") as config:
        config.write(_CONFIG)
    git.run("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow",
            str(project), f"+HEAD:{BASE_REF}", f"+HEAD:refs/heads/{branch}")
    os.rename(unfinished, git_dir)
    return Clone(git_dir)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A tree made from a base tree. Falsy if only dropped files differ.

    Base and tree decide: the verdict checks the tree out, and the commit is made from it. The patch
    is for people, for files and for rules that look at single files.
    """

    base_tree: str
    tree: str
    patch: Patch

    def __bool__(self) -> bool:
        return bool(self.patch)


def between(clone: Clone, base: str, tree: str, dropped: Iterable[Dropped] = ()) -> Change:
    """Return the change from a base (commit or tree) to a tree; `dropped` is noted in its patch."""
    base_tree, tree = clone.tree_of(base), clone.tree_of(tree)
    patch = clone.diff(base_tree, tree)
    return Change(base_tree=base_tree, tree=tree,
                  patch=msgspec.structs.replace(patch, dropped=tuple(dropped)))


def cleaned(clone: Clone, change: Change, edit: Sequence[str]) -> Change:
    """Drop from the tree the files that no candidate may add; see `hygiene.clean`."""
    return narrowed(clone, change, clean(change.patch, edit, clone.folders(change.base_tree)))


def narrowed(clone: Clone, change: Change, patch: Patch) -> Change:
    """Reduce a change to the sections in `patch`, some of its own: all other files are the base's.

    Raises InputError if the result is not a valid tree, such as a file below a path that the base
    has as a file.
    """
    rest = [file for file in change.patch.files if file not in patch.files]
    if not rest:
        return msgspec.structs.replace(change, patch=patch)
    with clone.index(change.tree) as index:
        clone.git.run("update-index", "-z", "--index-info", index=index,
                      stdin="".join(_restored(clone, change.base_tree, rest)).encode(
                          errors="surrogateescape"))
        tree = clone.write_tree(index)
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
