"""A campaign's repository: its clone, its branch of kept commits and the worktrees of its slots.

<campaign>/repo.git is a bare clone, and the copy that counts; its branch optimize/<campaign> moves
only by compare-and-swap. optimize/<campaign>-waiting holds the commits that wait for approval, and
those that rest on them; it never leaves the clone. Worktrees under <campaign>/worktrees borrow the
clone's objects. The user's repository receives one branch, and nothing at all if the manifest says
`git_commit: false`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.repository import worktree
from engine.repository.apply_patch import apply
from engine.repository.checkouts import checkout
from engine.repository.clone import BASE_REF, RECORDS, Change, Clone, cleaned, make
from engine.repository.git import OBJECT_ID, GitFailed
from engine.repository.patches.hygiene import why_empty
from engine.repository.patches.patch import Patch, parse
from engine.repository.project import Project, find
from engine.repository.user_branch import IN_PLACE, UserBranch
from harness.errors import InputError
from harness.formats import file_copy

BEST_FILE = "BEST_COMMIT"
CANDIDATES = "refs/kopt/candidates"
ROLLED_BACK = "refs/kopt/rolled-back"
STALE_LOCK_S = 10.0
"""Age at which a lock's owner counts as killed: no command of ours holds a lock that long."""
STALE_INDEX_S = 3600.0

SNAPSHOT = "refs/kopt/snapshot"
"""Exists in the clone of a campaign whose base has uncommitted files of the project."""


class CampaignRepo(Clone):
    """One campaign's repository. Its methods may be called from several threads."""

    def __init__(self, folder: Path, campaign: str, project: Path, *,
                 publishes: bool = True, published: str = "") -> None:
        """Open the repository of an existing campaign. Raises InputError if it has no clone.

        `project` is the user's repository, which is written to only if the campaign `publishes`.
        `published` is the branch's name there; by default it is the same as in the clone.
        """
        self.folder = folder.resolve()
        super().__init__(self.folder / "repo.git")
        self._without_records: dict[str, str] = {}
        self.campaign = campaign
        self.project = project.resolve()
        self.branch = f"optimize/{campaign}"
        self.ref = f"refs/heads/{self.branch}"
        self.waiting_ref = f"{self.ref}-waiting"
        self._user_branch = UserBranch(self.git, self.project, published or self.branch) \
            if publishes else None
        if not self.git_dir.is_dir():
            raise InputError("the campaign has no clone", where=str(self.git_dir),
                             fix="start it again with `kopt new`")

    @classmethod
    def create(cls, folder: Path, campaign: str, project: Path | Project, *,
               publishes: bool = True, published: str = "", in_place: bool = False,
               carry: Sequence[str] = (), origin: Project | None = None) -> CampaignRepo:
        """Clone the project's HEAD, unless the clone exists; for errors see `project.find`.

        `carry` are globs of built files that every checkout gets; see `checkout.take_over`.
        An extracted copy has an `origin`: the project that holds the copy's built files,
        submodules and LFS files. `in_place`: the published branch may be checked out.
        """
        git_dir = folder.resolve() / "repo.git"
        if not git_dir.is_dir():
            source = project if isinstance(project, Project) else find(project)
            clone = make(git_dir, source.source, object_format=source.object_format,
                         branch=f"optimize/{campaign}")
            checkout.take_over(clone, folder.resolve(), origin or source, carry)
            if source.snapshot:
                clone.git.run("update-ref", SNAPSHOT, BASE_REF)
        repo = cls(folder, campaign, project.path if isinstance(project, Project) else project,
                   publishes=publishes, published=published)
        if in_place:
            repo.git.run("update-ref", IN_PLACE, repo.base)
        repo.note_best()
        return repo

    @property
    def missing(self) -> tuple[str, ...]:
        """One line for each part of the project that checkouts lack."""
        return checkout.missing(self)

    @property
    def base(self) -> str:
        """The commit that the campaign started from."""
        return self.commit_at(BASE_REF)

    @property
    def best(self) -> str:
        """The newest kept commit, or the base."""
        return self.commit_at(self.ref)

    @property
    def tip(self) -> str:
        """The provisional best, the last commit of the waiting line; without a line the best."""
        return self.git.find(self.waiting_ref) or self.best

    def tree_of(self, commit: str) -> str:
        """Return the tree of a commit, or a tree itself, without the records of campaigns."""
        if commit.startswith("refs/"):
            commit = self.commit_at(commit)
        if (known := self._without_records.get(commit)) is not None:
            return known
        tree, records = self.git.find_each(f"{commit}^{{tree}}", f"{commit}^{{tree}}:{RECORDS}/")
        if not tree:
            raise InputError(f"no commit {commit!r}", where=str(self.git_dir))
        if records:
            lines = self.git.run("ls-tree", "-z", tree).split(b"\0")
            tree = self.git.line("mktree", "-z", "--missing", stdin=b"\0".join(
                line for line in lines if line.partition(b"\t")[2] != RECORDS.encode()))
        if OBJECT_ID.fullmatch(commit):
            self._without_records[commit] = tree
        return self._without_records.setdefault(tree, tree)

    def has_tree(self, commit: str, tree: str) -> bool:
        """Return whether a commit exists and has a tree, records of campaigns aside."""
        try:
            return self.tree_of(commit) == tree
        except InputError:
            return False

    # candidates

    def apply(self, base: str, patch: Patch) -> Change:
        """Apply a patch to a commit or tree; falsy if that has it already. Raises InputError."""
        return apply(self, base, patch, self.project)

    def take(self, base: str, text: str | bytes, edit: Sequence[str] = ()) -> Change:
        """Apply a submitted patch, without the files that no candidate may add.

        See `hygiene.clean`. Raises InputError if it is not a patch, does not apply, or nothing of
        it is left.
        """
        applied = self.apply(base, parse(text).without(  # binary sections may lack their contents
            lambda file: "binary" if file.binary else
            "a record file of kopt" if file.path.startswith(f"{RECORDS}/") else ""))
        change = cleaned(self, applied, edit)
        if applied and not change:
            raise InputError(why_empty(change.patch.dropped), where="patch")
        return change

    def store_candidate(self, identity: str, tree: str) -> None:
        """Keep a candidate's tree under a reference of its own."""
        self.git.run("update-ref", f"{CANDIDATES}/{identity}", tree)

    def candidate_tree(self, identity: str) -> str:
        """Return a candidate's tree, "" if it was captured before kopt stored trees."""
        return self.git.find(f"{CANDIDATES}/{identity}")

    # the branch

    def commit(self, base_commit: str, tree: str, message: str,
               records: Mapping[str, bytes] | None = None) -> str:
        """Make the commit of a tree and return its id; the same arguments give the same id.

        The base's records stay; `records` by path are added or replaced. No branch moves. Raises
        InputError if the tree is the base's own.
        """
        if tree == self.tree_of(base_commit):
            raise InputError("the change is empty", where=base_commit[:12])
        return self.commit_tree(self.with_records(tree, base_commit, records or {}),
                                self.resolve(base_commit), message)

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

    def set_tip(self, commit: str) -> None:
        """Set the waiting line's branch to its last commit; delete it if that is the best."""
        if commit != self.best:
            self.git.run("update-ref", "-m", "waiting", self.waiting_ref, self.resolve(commit))
        elif self.git.find(self.waiting_ref):
            self.git.run("update-ref", "-d", self.waiting_ref)

    def restore(self, commit: str) -> None:
        """Set the branch to a commit that the journal names, wherever the branch is."""
        self.git.run("update-ref", "-m", "restore", self.ref, self.resolve(commit))

    def note_best(self) -> None:
        """Write the best commit's id into the campaign's folder, for people and their scripts."""
        file_copy.replace_file(self.folder / BEST_FILE, f"{self.best}\n".encode())

    def publish(self, back_from: str = "") -> str:
        """Create or move the user's branch; see `UserBranch.push`."""
        return self._user_branch.push(self.ref, back_from) if self._user_branch else ""

    def take_back(self, failed: str) -> str:
        """Move the user's branch from a failed commit back to the best; returns as `publish`."""
        self.git.run("update-ref", f"{ROLLED_BACK}/{failed}", failed)
        return self.publish(back_from=failed)

    def unlock(self) -> None:
        """Delete what killed git commands left: old indices, and locks once they are stale.

        Waits at most STALE_LOCK_S. Only the campaign's engine may call this.
        """
        for index in (self.git_dir / "kopt").glob("index-*"):
            if time.time() - index.stat().st_mtime > STALE_INDEX_S:
                shutil.rmtree(index, ignore_errors=True)
        deadline = time.monotonic() + STALE_LOCK_S
        while locks := [path for path in self.git_dir.rglob("*.lock") if path.is_file()]:
            for lock in locks:
                if time.time() - lock.stat().st_mtime > STALE_LOCK_S:
                    lock.unlink(missing_ok=True)
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)

    # worktrees and checkouts

    def worktree(self, slot: str, commit: str) -> Path:
        """Check a commit out into a fresh worktree for a slot and return its folder."""
        path = worktree.slot_folder(self.folder, slot)
        worktree.create(self, path, commit)
        checkout.fill(self, self.folder, commit, path)
        return path

    def checkout_tree(self, commit: str, directory: Path) -> None:
        """Write a commit's files, submodules and built files to a new folder, without any .git."""
        super().checkout_tree(commit, directory)
        checkout.fill(self, self.folder, commit, directory)

    def capture(self, path: Path, base_commit: str, edit: Sequence[str] = ()) -> Change:
        """Return the change from a commit to a slot's files; see `worktree.capture`."""
        return worktree.capture(self, path, base_commit, edit,
                                checkout.skip_reason(self, self.folder, base_commit, path))

    def remove(self, slot: str) -> None:
        """Delete a slot's worktree."""
        worktree.remove(worktree.slot_folder(self.folder, slot))

    def remove_all(self) -> None:
        """Delete every slot's worktree, such as those of an engine that was killed."""
        worktree.remove(self.folder / "worktrees")
