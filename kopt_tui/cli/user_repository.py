"""The user's own git repository, as `kopt merge` changes it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from engine.journal.records import Campaign
from engine.repository import git
from harness.errors import EnvironmentFault, Refused
from harness.formats.quantities import counted
from kopt_tui.snapshot import phrases

UNDER_WAY = {"rebase-merge": "a rebase", "rebase-apply": "a rebase", "MERGE_HEAD": "a merge",
             "CHERRY_PICK_HEAD": "a cherry-pick", "REVERT_HEAD": "a revert",
             "BISECT_LOG": "a bisection"}
"""Files in git's folder during an unfinished operation, which undoing a merge would abort."""
REDIRECTING = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")


class UserRepository:
    """The user's repository, with the user's own git configuration, identity and hooks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run git in the project; raises Refused with git's complaint."""
        env = {name: value for name, value in {**git.CLEARED, **os.environ}.items()
               if name not in REDIRECTING}
        env["GIT_OPTIONAL_LOCKS"] = "0"  # reading the status must not write the index
        try:
            done = subprocess.run(["git", "-C", str(self.path), *arguments], capture_output=True,
                                  input=stdin, check=False, env=env)
        except FileNotFoundError as error:
            raise EnvironmentFault("git is not installed", fix="install git 2.32 or newer") \
                from error
        if done.returncode:
            raise Refused(_complaint(done.stderr or done.stdout), where=f"git {arguments[0]}")
        return done.stdout

    def line(self, *arguments: str) -> str:
        return self.git(*arguments).decode(errors="replace").strip()

    def git_files(self, *names: str) -> dict[str, Path]:
        """Return the paths of files in git's own folder, by name."""
        options = [word for name in names for word in ("--git-path", name)]
        paths = self.line("rev-parse", *options).splitlines()
        return {name: self.path / path for name, path in zip(names, paths, strict=True)}

    def fetch(self, chosen: Campaign) -> None:
        """Fetch the campaign's commits from its own clone; no branch of the project moves."""
        clone = Path(chosen.path) / "repo.git"
        self.git("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(clone),
                 f"refs/heads/optimize/{chosen.id}")
        self.git("cat-file", "-e", f"{chosen.best_commit}^{{commit}}")

    def check_clean(self) -> None:
        """Raise Refused where a merge could touch uncommitted changes or unfinished operations."""
        if not self.path.is_dir():
            raise EnvironmentFault("the project's folder is gone", where=str(self.path))
        if self.line("rev-parse", "--is-bare-repository") == "true":
            raise Refused("the project is a bare repository", where=str(self.path),
                          fix="use --patch")
        for name, path in self.git_files(*UNDER_WAY).items():
            if path.exists():
                raise Refused(f"{UNDER_WAY[name]} is under way", where=str(self.path),
                              fix="finish or abort it first, or use --patch")
        if (lock := self.git_files("index.lock")["index.lock"]).exists():
            raise Refused("another git command holds the index", where=str(lock),
                          fix="wait for it, or delete the file if no git runs")
        if not self.line("branch", "--show-current"):
            raise Refused("no branch is checked out", where=str(self.path),
                          fix="git switch to the branch that should get the result")
        changed = self.line("status", "--porcelain", "--untracked-files=no").splitlines()
        if changed:
            raise Refused(f"{counted(len(changed), 'file')} changed but not committed, first "
                          f"{changed[0].strip().split(' ', 1)[-1]}", where=str(self.path),
                          fix="commit or stash them, or use --patch")

    def check_identity(self) -> None:
        """Raise EnvironmentFault if git does not know whose name a commit should have."""
        try:
            self.git("var", "GIT_AUTHOR_IDENT")
            self.git("var", "GIT_COMMITTER_IDENT")
        except Refused as error:
            raise EnvironmentFault(
                f"git cannot commit: {error.what.removeprefix('fatal: ')}", where=str(self.path),
                fix="git config --global user.name NAME, and user.email ADDRESS; or use --patch"
                ) from None

    def has_committed(self, paths: Sequence[str]) -> bool:
        """Return whether the paths and all tracked files are as in the last commit."""
        return self.is_own and not (
            self.git("status", "--porcelain", "--untracked-files=no")
            or self.git("status", "--porcelain", "--ignored", "--", *paths))

    @property
    def is_own(self) -> bool:
        """Return whether the folder is the root of a repository that has a commit."""
        try:
            return self.line("rev-parse", "--show-prefix") == "" and bool(
                self.git("rev-parse", "--verify", "HEAD"))
        except Refused:
            return False

    def check_new(self, chosen: Campaign, files: Sequence[str]) -> None:
        """Raise Refused if these files of the branch already equal the campaign's result."""
        if not self.git("diff", "--name-only", chosen.best_commit, "HEAD", "--", *files):
            raise Refused("the result is already in this branch", where=str(self.path))

    def apply(self, patch: bytes) -> None:
        """Apply a patch to the folder's files, all of it or nothing, and commit nothing."""
        try:
            prefix = self.line("rev-parse", "--show-prefix")
        except Refused:
            prefix = ""
        try:
            self.git("apply", *([f"--directory={prefix}"] if prefix else []), "-", stdin=patch)
        except Refused as error:
            raise Refused(f"{error.what}; nothing was changed", where=str(self.path),
                          fix="--patch prints the change") from error

    def merge(self, chosen: Campaign, message: str, *, squash: bool, pick: bool = False) -> None:
        """Merge the best commit; after a conflict everything is restored.

        `pick`: apply the kept commits to the branch one by one, for a campaign whose base is no
        commit of the branch.
        """
        before = self.line("rev-parse", "HEAD")
        kept = f"{chosen.base_commit}..{chosen.best_commit}"
        try:
            if pick:
                self.git("cherry-pick", *(["--no-commit"] if squash else []), kept)
            elif squash:
                self.git("merge", "--squash", chosen.best_commit)
            else:
                self.git("merge", "--no-ff", "--no-edit", "-m", message, chosen.best_commit)
            if squash:
                self.git("commit", "--quiet", "-m", message)
        except Refused as error:
            if pick:
                self.git("cherry-pick", "--quit")
            self.git("reset", "--quiet", "--merge", before)
            again = f"cherry-pick {chosen.base_commit[:12]}..{chosen.best_commit[:12]}" if pick \
                else f"merge {chosen.best_commit[:12]}"
            raise Refused(f"{error.what}; nothing was changed", where=str(self.path),
                          fix=f"git {again} lets you resolve it, --patch prints the change"
                          ) from error
        if self.line("rev-parse", "HEAD") == before:
            raise Refused("the result is already in this branch", where=str(self.path))


def _complaint(printed: bytes) -> str:
    """Return the most informative line that git printed."""
    lines = [line.strip() for line in printed.decode(errors="replace").splitlines()]
    errors = [line for line in lines if line.startswith(("fatal:", "error:", "CONFLICT"))]
    return phrases.clean((errors or [line for line in lines if line] or ["failed"])[0], 300)
