"""The user's project: a git repository. The engine reads it and writes one branch there."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.repository.git import Git, GitFailed, init, locate
from harness.errors import InputError
from harness.formats.quantities import listed

SHA1_DIGITS = 40


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A project's state. `dirty` lists tracked files that differ from `head`."""

    path: Path
    git_dir: Path
    """The git directory that has `head`."""
    head: str
    object_format: str
    dirty: tuple[str, ...] = ()
    branch: str = ""
    """The branch that is checked out, "" for none."""
    snapshot: str = ""
    """A notice of what in `head` is not committed; "" if `head` is the project's own commit."""
    is_repository: bool = True
    """Whether the folder is the top of a git repository, which can take a branch."""

    @property
    def source(self) -> Path:
        """Where to fetch `head` from."""
        return self.git_dir if self.snapshot else self.path

    @property
    def warning(self) -> str:
        """One line about files that are not committed, or ""."""
        if self.snapshot or not self.dirty:
            return self.snapshot
        return (f"{self.path}: uncommitted changes in {listed(self.dirty, 3)} are "
                f"ignored; the campaign starts from commit {self.head[:12]}")


def find(path: Path) -> Project:
    """Return the project at a path; raises InputError if a campaign cannot use it."""
    here = path.resolve()
    if not here.is_dir():
        raise InputError("no such folder", where=str(path), fix="correct `project:`")
    location = locate(here)
    if location is None:
        raise InputError("the project is not a git repository", where=str(path), fix=(
            "run `git init && git add -A && git commit -m start` there"))
    if location.work_tree is not None and location.work_tree != here:
        raise InputError(f"the folder lies inside the repository {location.work_tree}",
                         where=str(here), fix=(f"set `project: {location.work_tree}`, or run "
                                               "`git init` in the folder"))
    git = Git(location.git_dir)
    head, branch, dirty = _of_bare(git) if location.work_tree is None else _status(git, here)
    if not head:
        raise InputError("the project has no commit yet", where=str(path),
                         fix="run `git add -A && git commit -m start` there")
    return Project(path=here, git_dir=location.git_dir, head=head, dirty=dirty, branch=branch,
                   object_format=object_format(head))


def object_format(identity: str) -> str:
    """Return the format of a repository's objects, by an object's full id."""
    return "sha1" if len(identity) == SHA1_DIGITS else "sha256"


def _of_bare(git: Git) -> tuple[str, str, tuple[str, ...]]:
    try:
        branch = git.line("symbolic-ref", "--quiet", "--short", "HEAD")
    except GitFailed:
        branch = ""
    return git.find("HEAD^{commit}"), branch, ()


def start_repository(path: Path, message: str) -> None:
    """Make a folder a git repository and commit everything in it; raises GitFailed."""
    git = init(path)
    git.run("add", "--all", "--force", work_tree=path)
    git.run("commit", "--quiet", "--message", message, work_tree=path)


def _status(git: Git, here: Path) -> tuple[str, str, tuple[str, ...]]:
    """Return the commit and the branch that are checked out, "" for none, and changed files."""
    status = git.run("status", "--porcelain=v2", "--branch", "--no-ahead-behind", "-z",
                     "--untracked-files=no", "--no-renames", "--ignore-submodules=all",
                     work_tree=here)
    lines = status.decode(errors="surrogateescape").split("\0")[:-1]
    facts = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# "))
    head, branch = facts["branch.oid"], facts["branch.head"]
    return ("" if head == "(initial)" else head, "" if branch == "(detached)" else branch,
            tuple(line.split(" ", 10 if line[0] == "u" else 8)[-1]
                  for line in lines if line[0] in "1u"))
