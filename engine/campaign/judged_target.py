"""The fixed facts of a target under judgement and its devices, for a campaign or one verdict."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.manifest import benchmark_target
from engine.manifest.schema import Manifest
from engine.repository.campaign_repo import CampaignRepo
from engine.repository.git import GitFailed
from engine.repository.patches.hygiene import violations
from engine.repository.patches.patch import Patch
from harness.benchmark.spec.command_target import CommandTarget
from harness.devices import inventory
from harness.devices.device import Device, join_cards
from harness.errors import DeviceFault, InputError
from harness.formats import file_copy
from harness.tasks import task_file
from harness.tasks.target import Target


@dataclass(frozen=True, kw_only=True)
class JudgedTarget:
    """A manifest's target, the devices to measure it on and the tree that candidates start from."""

    manifest: Manifest
    target: Target | CommandTarget
    devices: tuple[Device, ...]
    """Never empty; all are of one kind and model."""
    repo: CampaignRepo
    base_tree: str
    trees: Path
    """Folder of plain checkouts, each named by its tree."""

    @property
    def device(self) -> Device:
        """The first device, for properties that all devices share."""
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
        return self.manifest.frozen or (*self.target.frozen_files, self.manifest.target.task)

    def breach(self, patch: Patch) -> str:
        """Return the first rule that a patch breaks, with the file that breaks it, or "".

        A change outside of `edit` breaks a rule for command targets only: their benchmark is part
        of the project.
        """
        return next((f"{broken.path} {broken.detail}" for broken in
                     violations(patch, self.edit, self.frozen)
                     if broken.kind != "outside" or self.command is not None), "")

    def tree(self, commit: str) -> Path:
        """Return a plain checkout of a commit or tree for the harness; the first call makes it.

        Raises InputError if its files cannot be written.
        """
        path = self.trees / self.repo.tree_of(commit)
        if not path.is_dir():
            self.trees.mkdir(exist_ok=True)  # `kopt prune` deletes it
            unfinished = Path(tempfile.mkdtemp(dir=self.trees, suffix=".part"))
            try:
                self.repo.checkout_tree(commit, unfinished)
            except GitFailed as error:  # the file system may not allow one of the names
                file_copy.remove(unfinished)
                raise InputError(error.what, where="checkout") from None
            try:
                unfinished.rename(path)
            except OSError:  # another thread was first
                shutil.rmtree(unfinished)
        return path


def read_target(manifest: Manifest, repo: CampaignRepo, base_tree: str,
                folder: Path) -> Target | CommandTarget:
    """Read the target from a tree of the repository; copy a kernel's task file to `folder`."""
    if manifest.target.kind == "command":
        return benchmark_target.sealed_target(manifest, repo.files(base_tree))
    copy = folder / "task.yaml"
    copy.write_bytes(repo.read(base_tree, manifest.target.task))
    return task_file.load(copy)


def devices_for(manifest: Manifest, task: Target | CommandTarget, *,
                model: str = "") -> tuple[Device, ...]:
    """Return the manifest's devices, at most `gpu.cards` cards. Raises KoptError.

    "auto" is the CPU for a kernel in C that does not need several GPUs, else the most idle card and
    all others of its model; if the machine has a card of `model`, only cards of that model.
    """
    name = manifest.gpu.device
    if name == "auto":
        on_cpu = task.language == "c" and task.num_gpus == 1
        first = inventory.find("cpu" if on_cpu else name)
        if model and first.name != model:
            first = next((device for device in inventory.inventory()
                          if device.name == model and not device.unusable), first)
        devices = inventory.same_model(first)
    else:
        devices = _present([part.strip() for part in name.split(",")])
    cards = list(dict.fromkeys(card for device in devices for card in device.cards))
    return group_cards(cards[:manifest.gpu.cards], task.num_gpus)


def group_cards(cards: Sequence[Device], size: int) -> tuple[Device, ...]:
    """Join cards for a target that needs several at a time; surplus cards stay idle."""
    if size == 1:
        return tuple(cards)
    if cards[0].kind == "cpu" or len(cards) < size:
        count = 0 if cards[0].kind == "cpu" else len(cards)
        raise DeviceFault(f"the target needs {size} GPUs of one model, and there are {count}",
                          where="gpu.device")
    return tuple(join_cards(cards[at:at + size]) for at in range(0, len(cards) - size + 1, size))


def _present(names: Sequence[str]) -> list[Device]:
    """Return the named devices that exist. Raises KoptError if none does or models differ."""
    devices: list[Device] = []
    faults: list[DeviceFault] = []
    for name in names:
        try:
            devices.append(inventory.find(name))
        except DeviceFault as fault:
            faults.append(fault)
    if not devices:
        raise faults[0]
    first = devices[0]
    cards = [card for device in devices for card in device.cards]
    if others := [card.id for card in cards if (card.kind, card.name, card.arch) != (
            first.kind, first.name, first.arch)]:
        raise InputError(f"{others[0]} is not the same model as {first.id}", where="gpu.device",
                         fix="name cards of one model: times of two models cannot be compared")
    return devices
