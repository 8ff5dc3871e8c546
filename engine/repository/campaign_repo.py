"""The line of kept commits of one campaign: its clone, its branch, its slots' worktrees.

<campaign>/repo.git is the campaign's bare clone, and the truth; its branch optimize/<campaign>
moves only by compare-and-swap. Worktrees under <campaign>/worktrees borrow its objects. The user's
repository only ever receives that one branch, and nothing at all where the manifest says
`git_commit: false`.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from engine.repository import checkout, worktree
from engine.repository.apply_patch import Applied, apply
from engine.repository.change import Change, cleaned
from engine.repository.clone import BASE_REF, Clone, make
from engine.repository.git import NO_HOOKS, GitFailed
from engine.repository.patches.hygiene import without_binaries
from engine.repository.patches.patch import Patch, parse
from engine.repository.project import Project, find
from harness.errors import EnvironmentFault, InputError

STALE_LOCK_S = 10.0
"""Age at which a lock file's owner counts as killed: no command of ours holds one that long."""
STALE_INDEX_S = 3600.0
BEST_FILE = "BEST_COMMIT"
CANDIDATES = "refs/kopt/candidates"


class CampaignRepo(Clone):
    """One campaign's commits. Its methods may be called from several threads."""

    def __init__(self, folder: Path, campaign: str, project: Path, *,
                 publishes: bool = True, published: str = "") -> None:
        """Open the repository of an existing campaign. Raises InputError if it has no clone.

        `project` is the user's repository, which is never written to unless it `publishes`;
        `published` is the branch's name there, the same if it is empty.
        """
        self.folder = folder.resolve()
        super().__init__(self.folder / "repo.git")
        self.campaign = campaign
        self.project = project.resolve()
        self.publishes = publishes
        self.branch = f"optimize/{campaign}"
        self.ref = f"refs/heads/{self.branch}"
        self.published = published or self.branch
        if not self.git_dir.is_dir():
            raise InputError("the campaign has no clone", where=str(self.git_dir),
                             fix="start it anew with `kopt new`")

    @classmethod
    def create(cls, folder: Path, campaign: str, project: Path | Project, *,
               publishes: bool = True, published: str = "", carry: Sequence[str] = (),
               origin: Project | None = None) -> CampaignRepo:
        """Clone the project's HEAD, unless that is done already; see `project.find` for errors.

        `carry` are globs of built files that every checkout is to have, see `carry.take_over`. An
        extracted copy has an `origin`, where these lie, its submodules and its LFS files.
        """
        git_dir = folder.resolve() / "repo.git"
        if not git_dir.is_dir():
            found = project if isinstance(project, Project) else find(project)
            made = make(git_dir, found.path, object_format=found.object_format,
                        branch=f"optimize/{campaign}")
            checkout.take_over(made, folder.resolve(), origin or found, carry)
        repo = cls(folder, campaign, project.path if isinstance(project, Project) else project,
                      publishes=publishes, published=published)
        repo.note_best()
        return repo

    @property
    def missing(self) -> tuple[str, ...]:
        """One line on each thing of the project that no checkout will have."""
        return checkout.missing(self)

    @property
    def base(self) -> str:
        """The commit that the campaign started from."""
        return self.resolve(BASE_REF)

    @property
    def best(self) -> str:
        """The newest kept commit, or the base."""
        return self.resolve(self.ref)

    # patches and commits

    def apply(self, base: str, patch: Patch) -> Applied:
        """Apply a patch to a commit or tree; raises InputError if it does not apply."""
        return apply(self, base, patch, self.project)

    def take(self, base: str, given: str | bytes, edit: Sequence[str] = ()) -> Change:
        """Apply a patch that somebody handed in, less its rubbish; see `hygiene.clean`.

        Raises InputError if it is no patch, does not apply, or nothing of it is left.
        """
        applied = self.apply(base, without_binaries(parse(given)))
        change = cleaned(self, applied, edit)
        if applied and not change:
            reasons = "; ".join(f"{left.path!r}: {left.reason}"
                                for left in change.patch.dropped[:3])
            raise InputError(f"nothing of the patch is left ({reasons})", where="patch")
        return change

    def commit(self, base_commit: str, tree: str, message: str) -> str:
        """Make the commit of a tree and return its id, the same one however often it is made.

        No branch moves. Raises InputError if the tree is the base's own.
        """
        if tree == self.tree_of(base_commit):
            raise InputError("the change is empty", where=base_commit[:12])
        return self.commit_tree(tree, self.resolve(base_commit), message)

    def store_candidate(self, identity: str, tree: str) -> None:
        """Keep a candidate's tree under a reference of its own."""
        self.git.run("update-ref", f"{CANDIDATES}/{identity}", tree)

    def candidate_tree(self, identity: str) -> str:
        """Return a candidate's tree, "" for one that was captured before trees were kept."""
        return self.git.find(f"{CANDIDATES}/{identity}")

    def advance(self, expected: str, commit: str) -> bool:
        """Move the branch from `expected` to `commit`; False if it is at neither of them."""
        try:
            self.git.run("update-ref", "-m", "keep", self.ref, commit, expected)
        except GitFailed:
            if self.git.find(self.ref) not in (expected, commit):
                return False
            if self.best == expected:
                raise
        return True

    def restore(self, commit: str) -> None:
        """Set the branch to a commit, whatever it is at: the journal has said so."""
        self.git.run("update-ref", "-m", "restore", self.ref, self.resolve(commit))

    def note_best(self) -> None:
        """Write the best commit's id into the campaign's folder, for people and their scripts."""
        path = self.folder / BEST_FILE
        unfinished = path.with_name(f"{BEST_FILE}.new")
        unfinished.write_text(f"{self.best}\n")
        os.replace(unfinished, path)

    def publish(self) -> str:
        """Push the branch to the user's repository; return "" or, in one line, why it refused.

        It is only ever created or moved forward, but for `take_back`. A branch that is checked out
        or has commits of others stays as it is; working tree, index and HEAD are never touched.
        """
        return self._push()

    def take_back(self, failed: str) -> str:
        """Set the user's branch back from a commit that does not stand to the best, as `publish`
        does; one that is not where the campaign has left it stays as it is.
        """
        self.git.run("update-ref", f"refs/kopt/rolled-back/{failed}", failed)
        return self._push(f"--force-with-lease=refs/heads/{self.published}:{failed}")

    def _push(self, *options: str) -> str:
        if not self.publishes:
            return ""
        served_by = f"git {NO_HOOKS} -c receive.denyCurrentBranch=refuse -c receive.autogc=false"
        try:
            self.git.run("push", "--porcelain", "--no-verify", "--no-signed", *options,
                         f"--receive-pack={served_by} receive-pack", str(self.project),
                         f"{self.ref}:refs/heads/{self.published}")
        except (GitFailed, EnvironmentFault) as error:
            why = _refusal(error)
            return f"{self.project} did not take branch {self.published}: {why}"
        return ""

    def unlock(self) -> None:
        """Remove lock files that killed git commands left; only the campaign's engine may."""
        for left in (self.git_dir / "kopt").glob("index-*"):
            if time.time() - left.stat().st_mtime > STALE_INDEX_S:
                shutil.rmtree(left, ignore_errors=True)
        deadline = time.monotonic() + STALE_LOCK_S
        while locks := [p for p in self.git_dir.rglob("*.lock") if p.is_file()]:
            for lock in locks:
                if time.time() - lock.stat().st_mtime > STALE_LOCK_S:
                    lock.unlink(missing_ok=True)
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)

    # worktrees

    def worktree(self, slot: str, commit: str) -> Path:
        """Check a commit out for a slot and return the folder, made anew."""
        path = worktree.slot_folder(self.folder, slot)
        worktree.create(self, path, commit)
        checkout.fill(self, self.folder, commit, path)
        return path

    def checkout_tree(self, commit: str, directory: Path) -> None:
        """Write a commit's files into an empty or new directory, without any .git, those of its
        submodules, and the built ones that are carried along.
        """
        super().checkout_tree(commit, directory)
        checkout.fill(self, self.folder, commit, directory)

    def capture(self, path: Path, base_commit: str, edit: Sequence[str] = ()) -> Change:
        """Return the tree that a slot's files make of a commit; see `worktree.capture`."""
        return worktree.capture(self, path, base_commit, edit,
                                checkout.settled(self, self.folder, base_commit, path))

    def remove(self, slot: str) -> None:
        """Delete a slot's worktree."""
        worktree.remove(worktree.slot_folder(self.folder, slot))

    def remove_all(self) -> None:
        """Delete every slot's worktree, such as those of an engine that was killed."""
        worktree.remove(self.folder / "worktrees")


_REASONS = {
    "fetch first": "it has commits that are not the campaign's",
    "non-fast-forward": "it has commits that are not the campaign's",
    "stale info": "it is not where the campaign has left it",
    "branch is currently checked out": "it is checked out there; switch to another branch",
}


def _refusal(error: GitFailed | EnvironmentFault) -> str:
    """Return what the receiving git said of the one branch that was pushed."""
    printed = error.printed.decode(errors="replace") if isinstance(error, GitFailed) else ""
    told = re.search(r"^!\t[^\t]*\t\[[a-z ]+\] \((.*)\)$", printed, re.MULTILINE)
    return _REASONS.get(told[1], told[1]) if told else error.what
