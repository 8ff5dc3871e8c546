"""A project's files as they are now, committed or not, as a commit of a temporary repository.

The project's index, working tree, branches and objects stay as they are. Files that git ignores
are left out, and so are files that builds write.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from engine.repository.checkouts import lfs
from engine.repository.clone import Clone
from engine.repository.git import Git, Location, init, locate, user_setting
from engine.repository.project import Project, find, object_format
from harness.errors import InputError
from harness.formats.quantities import counted, data_size, listed

MOST_FILES, MOST_BYTES = 20_000, 256 << 20
"""Limits of the files that are neither committed nor ignored."""
BUILT = "__pycache__/\n*.pyc\n*.o\n*.so\n*.a\n.venv/\n"
"""Patterns of files that a build or Python writes, ignored in each snapshot."""
NAMED = 3


def take(path: Path, folder: Path) -> Project:
    """Return the project at a path with its files as they are now.

    Its `head` is the project's own commit if the path is the top of a repository that has every
    file committed, else a commit of a new repository in `folder`. Raises InputError for a folder
    that is missing or too large.
    """
    here = path.resolve()
    location = locate(here) if here.is_dir() else None
    if not here.is_dir() or (location is not None and location.work_tree is None):
        return find(here)
    top = here if location is None or location.work_tree is None else location.work_tree
    prefix = here.relative_to(top).as_posix()
    head = before = ""
    if location is not None:
        inside = "" if prefix == "." else prefix
        head, before = Git(location.git_dir).find_each("HEAD^{commit}", f"HEAD^{{commit}}:{inside}")
    git = borrowing_repository(folder / "snapshot.git", location, here, head)
    index = folder / "index"
    if location is not None and (location.git_dir / "index").is_file():
        # with its time: git rereads files that are not older than the index
        shutil.copy2(location.git_dir / "index", index)
    _check_size(git, top, prefix, index)
    git.run("add", "--all", "--", prefix, work_tree=top, index=index)
    clone = Clone(folder / "snapshot.git", git)
    below = () if prefix == "." else (f"--prefix={prefix}/",)
    tree = git.line("write-tree", "--missing-ok", *below, index=index)
    if before not in ("", tree):
        tree = _with_lfs_pointers(clone, before, tree, here)
    if prefix != "." or location is None:
        commit = _first_commit(git, tree)
        notice = f"{here} is not a git repository" if location is None else \
            f"{here} lies inside the repository {top}"
        notice += ": kopt works on a copy of the folder"
    elif tree == before:
        return find(here)
    else:
        commit = clone.commit_tree(tree, head, "Files that were not committed") if head \
            else _first_commit(git, tree)
        changed = git.line("diff-tree", "-r", "--name-only", before, tree).splitlines() if head \
            else clone.files(tree)
        notice = f"not committed: {listed(changed, NAMED)}; kopt works on the files as they are now"
    git.run("update-ref", "HEAD", commit)
    return Project(path=here, git_dir=clone.git_dir, head=commit, snapshot=notice,
                   is_repository=prefix == "." and location is not None,
                   object_format=object_format(commit))


def borrowing_repository(path: Path, location: Location | None, here: Path, head: str) -> Git:
    """Make an empty repository that borrows another's objects and patterns of ignored files.

    `head` is the other's commit, "" if it has none.
    """
    form = object_format(head) if head else "sha1" if location is None else \
        Git(location.git_dir).line("rev-parse", "--show-object-format")
    git = init(path, object_format=form, bare=True)
    ignored = BUILT + _text(_global_excludes(here))
    if location is not None:
        (path / "objects" / "info").mkdir(parents=True, exist_ok=True)
        (path / "objects" / "info" / "alternates").write_text(f"{location.common_dir}/objects\n")
        if (location.common_dir / "shallow").is_file():
            shutil.copyfile(location.common_dir / "shallow", path / "shallow")
        ignored += _text(location.common_dir / "info" / "exclude")
    (path / "info").mkdir(exist_ok=True)
    (path / "info" / "exclude").write_text(ignored)
    return git


def _global_excludes(here: Path) -> Path:
    """Return the file with the user's own patterns of ignored files."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Path(user_setting(here, "core.excludesFile") or home / "git" / "ignore")


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="surrogateescape").rstrip("\n") + "\n"
    except OSError:
        return ""


def _check_size(git: Git, top: Path, prefix: str, index: Path) -> None:
    """Raise InputError if copying the files that are not committed would take too long."""
    listing = git.run("ls-files", "-z", "--others", "--exclude-standard", "--", prefix,
                      work_tree=top, index=index)
    names = listing.decode(errors="surrogateescape").split("\0")[:-1]
    sizes = {name: (top / name).lstat().st_size for name in names if os.path.lexists(top / name)}
    if len(sizes) > MOST_FILES or sum(sizes.values()) > MOST_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        raise InputError(
            f"{counted(len(sizes), 'file')} of {data_size(sum(sizes.values()))} are neither "
            f"committed nor ignored, more than kopt copies ({MOST_FILES:,} files, "
            f"{data_size(MOST_BYTES)}); the largest is {largest}", where=str(top),
            fix="commit what the kernel needs, and name the rest in .gitignore")


def _with_lfs_pointers(clone: Clone, before: str, tree: str, here: Path) -> str:
    """Return the tree with the pointer of `before` for each LFS file that has not changed."""
    entries, now = clone.entries(before), clone.entries(tree)
    lines = [f"{entries[path].mode} {entries[path].id}\t{path}\0"
             for path, pointer in lfs.pointers(clone, before).items()
             if path in now and now[path] != entries[path] and lfs.unchanged(pointer, here / path)]
    if not lines:
        return tree
    with clone.index(tree) as index:
        clone.git.run("update-index", "-z", "--index-info", index=index,
                      stdin="".join(lines).encode(errors="surrogateescape"))
        return clone.git.line("write-tree", "--missing-ok", index=index)


def _first_commit(git: Git, tree: str) -> str:
    return git.line("commit-tree", tree, stdin=b"The files as they were\n")
