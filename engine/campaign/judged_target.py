"""The fixed facts of a target under judgement, in a campaign or for a single verdict."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from engine.manifest import benchmark_target
from engine.manifest.schema import Manifest
from engine.repository.campaign_repo import CampaignRepo
from harness import target as targets
from harness.benchmark.spec.command_target import CommandTarget
from harness.devices.device import Device
from harness.target import Target


@dataclass(frozen=True, kw_only=True)
class JudgedTarget:
    """A manifest's target, the devices to measure it on and the tree that candidates start from."""

    manifest: Manifest
    target: Target | CommandTarget
    devices: tuple[Device, ...]
    """All of one kind and model."""
    repo: CampaignRepo
    base_tree: str
    trees: Path
    """Folder of plain checkouts, each named by its tree."""

    @property
    def device(self) -> Device:
        """The first device, for what is the same on all."""
        return self.devices[0]

    @property
    def command(self) -> CommandTarget | None:
        """The target, if it is judged by the project's own benchmark."""
        return self.target if isinstance(self.target, CommandTarget) else None

    @property
    def edit(self) -> tuple[str, ...]:
        """Globs of the files that candidates may change."""
        if isinstance(self.target, CommandTarget):
            return benchmark_target.editable_globs(self.manifest)
        return self.manifest.edit or (self.target.source,)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Globs of the files that no candidate may change."""
        if isinstance(self.target, CommandTarget):
            return benchmark_target.frozen_globs(self.manifest, self.repo.files(self.base_tree))
        return self.manifest.frozen or (self.target.reference_file, self.manifest.target.task)

    def tree(self, commit: str) -> Path:
        """Return a plain checkout of a commit or tree for the harness, made once."""
        path = self.trees / self.repo.tree_of(commit)
        if not path.is_dir():
            self.trees.mkdir(exist_ok=True)  # `kopt prune` deletes it
            unfinished = Path(tempfile.mkdtemp(dir=self.trees, suffix=".part"))
            self.repo.checkout_tree(commit, unfinished)
            try:
                unfinished.rename(path)
            except OSError:  # another thread was first
                shutil.rmtree(unfinished)
        return path


def read_target(manifest: Manifest, repo: CampaignRepo, base_tree: str,
                folder: Path) -> Target | CommandTarget:
    """Read the target from a tree: a later edit of the project changes nothing.

    A kernel's task file is written to `folder`.
    """
    if manifest.target.kind == "command":
        return benchmark_target.sealed_target(manifest, repo.files(base_tree))
    copy = folder / "task.yaml"
    copy.write_bytes(repo.read(base_tree, manifest.target.task))
    return targets.load(copy)
