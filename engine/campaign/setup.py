"""Creates and opens campaigns: folder, manifest, target, devices and repository."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.campaign import (
    declared_knobs,
    earlier_changes,
    project_skill,
    shape_weights,
    task_notes,
    workspace_copy,
)
from engine.campaign.folder import Folder
from engine.campaign.judged_target import JudgedTarget, devices_for, read_target
from engine.globs import matches
from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.journal.write import Writer
from engine.manifest import benchmark_target, command_checks, load
from engine.manifest import schema as manifests
from engine.manifest.rules import ignored_fields
from engine.manifest.schema import Manifest
from engine.repository import current_files
from engine.repository import project as projects
from engine.repository.campaign_repo import CampaignRepo
from engine.repository.checkouts import submodules
from engine.repository.clone import Clone
from engine.repository.project import Project
from engine.subagents import subagent_registry
from engine.task import AGENT_BACKENDS
from harness.benchmark.spec.command_target import CommandTarget
from harness.compile import c_compiler
from harness.compile.device_code import toolkits
from harness.devices.device import Device
from harness.errors import DeviceFault, InputError
from harness.tasks import task_file
from harness.tasks.target import OF_CARD, Target


@dataclass(frozen=True, kw_only=True)
class Setup(JudgedTarget):
    """One open campaign."""

    workspace: Path
    id: str
    folder: Folder

    @property
    def planned_looks(self) -> int:
        """Number of verdicts that share half of the campaign's error rate equally."""
        rounds = self.manifest.max_iterations or 100
        return self.manifest.decision.looks or rounds * (self.manifest.pool.slots or 16)


def create(workspace: Path, manifest_path: Path) -> Setup:
    """Make a campaign's folder, clone and journal entry from a manifest.

    If something is missing, raises InputError or EnvironmentFault and leaves no files behind.
    """
    with tempfile.TemporaryDirectory(prefix="kopt-") as temporary:
        return _create(workspace, load.load_new(manifest_path), Path(temporary))


def _create(workspace: Path, manifest: Manifest, temporary: Path) -> Setup:
    benchmark_target.check_runnable(manifest)
    project = projects.find(Path(manifest.project)) if _in_place(manifest) else \
        current_files.take(Path(manifest.project), temporary)
    undeclared, project = project.head, project if _in_place(manifest) else \
        declared_knobs.declare(project, manifest, temporary)
    if manifest.project_skill:
        project_skill.find(manifest.project_skill, Clone(project.git_dir).files(project.head))
    weights = shape_weights.read(manifest)
    task, notes = shape_weights.apply(_target_of(manifest, project),
                                      weights.weights if weights else None)
    notes = (*notes, *task_notes.of_target(task, Clone(project.git_dir), project.head))
    cards = devices_for(manifest, task)
    if task.language == "c":
        c_compiler.compiler()
    elif isinstance(task, Target) and task.language in OF_CARD:
        if task.launch is None:
            toolkits.compiler(task.language)
        if "split" in manifest.pool.backends:
            notes = (*notes, f"backend split is not available: kopt writes kernels for single "
                     f"config classes in C and Python only, not in {task.source}")
    if set(AGENT_BACKENDS) & set(manifest.pool.backends):
        notes = (*notes, *subagent_registry.load(Path(manifest.project)).problems,
                 *command_checks.without_network(manifest),
                 *command_checks.agent_problems(manifest))
    if manifest.pool.agent is not None and manifest.pool.agent.script:
        notes = (*notes, "no model works in the agent's slots: a script answers, "
                 f"{manifest.pool.agent.script}")
    with contextlib.closing(Writer(workspace)) as writer:
        folder = _new_folder(workspace, manifest, task, cards[0])
        try:
            filled = _filled(manifest, task, cards, folder.path.name, project)
            _record(writer, folder, project, filled, cards[0], task, weights, notes,
                    in_place=_in_place(manifest), undeclared=undeclared)
        except BaseException:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
    return open_campaign(workspace, folder.path.name)


def _record(writer: Writer, folder: Folder, project: Project, manifest: Manifest,
            device: Device, task: Target | CommandTarget,
            weights: shape_weights.WeightsFile | None, notes: Sequence[str], *,
            in_place: bool, undeclared: str) -> None:
    """Make the campaign's repository and write its manifest and journal entry.

    `undeclared` is the commit before the one that declares proposed knobs, else the head itself.
    """
    identity, source = folder.path.name, project
    if manifest.execution_mode == "workspace":
        source = workspace_copy.extract(project, manifest, task, folder.path)
    repo = CampaignRepo.create(
        folder.path, identity, source, publishes=manifests.publishes_commits(manifest),
        published=_published(manifest), in_place=in_place, carry=manifest.carry, origin=project)
    if source is not project:
        workspace_copy.complete(source, repo)
    elif undeclared != project.head:
        repo.git.run("update-ref", declared_knobs.BEFORE, undeclared)
    folder.manifest.write_text(load.dump(manifest))
    campaign = Campaign(
        id=identity, path=str(folder.path), op=manifest.target_op, backend=manifest.target_backend,
        lang=manifest.target_lang, gpu=manifest.target_gpu, device=device.label,
        project=str(project.path), base_commit=repo.base, best_commit=repo.base, state="new",
        rounds_max=last_round(manifest))
    if replayed := manifest.pool.replay:
        patches = Path(manifest.project) / replayed
        with contextlib.closing(Reader(writer.workspace)) as reader:
            earlier_changes.hand_in(earlier_changes.read(
                reader, campaign, str(patches) if patches.is_dir() else replayed,
                lambda: (task, repo)), folder.inbox)
    with writer.transaction():
        writer.add_campaign(campaign)
        if source is not project:
            count = len(repo.files(repo.base))
            writer.event(identity, "extracted", project.head, files=count)
        if weights is not None:
            shape_weights.store(weights, folder, writer, identity)
        if project.warning:
            writer.event(identity, "warning", message=project.warning)
        for line in (*repo.missing, *notes):
            writer.event(identity, "warning", message=line)
        if ignored := ignored_fields(manifest, task):
            writer.event(identity, "warning", message=(
                f"fields that this version ignores: {', '.join(ignored)}"))


def _in_place(manifest: Manifest) -> bool:
    """Return whether kept commits go to the project's checked-out branch, not to a new one."""
    return manifest.git_branch == "none" and manifest.git_commit


def last_round(manifest: Manifest) -> int | None:
    """Return the last round's number, None for no limit; round 1, the baseline, is no iteration."""
    return None if manifest.max_iterations is None else manifest.max_iterations + 1


def _published(manifest: Manifest) -> str:
    """Return the branch that the manifest names for kept commits, "" for the default name."""
    return "" if manifest.git_branch in ("auto", "none") else manifest.git_branch


def open_campaign(workspace: Path, identity: str, *, to_read: bool = False) -> Setup:
    """Open an existing campaign; with `to_read`, without its devices.

    Raises InputError if there is no such campaign, and DeviceFault if this machine's card is of
    another model: verdicts, caches and the headline of two models must not mix.
    """
    with contextlib.closing(Reader(workspace)) as reader:
        campaign = reader.campaign(identity)
        if campaign is None:
            raise InputError(f"no campaign {identity!r}", where=str(workspace),
                             fix="`kopt status` lists them")
        folder = Folder(Path(campaign.path))
        weights = shape_weights.load_stored(folder, reader, identity)
    manifest = load.load(folder.manifest)
    repo = CampaignRepo(folder.path, identity, Path(campaign.project),
                        publishes=manifests.publishes_commits(manifest),
                        published=_published(manifest))
    base_tree = repo.tree_of(repo.base)
    task, _ = shape_weights.apply(read_target(manifest, repo, base_tree, folder.path), weights)
    devices = () if to_read else devices_for(manifest, task, model=campaign.device)
    if devices and devices[0].label != campaign.device:
        raise DeviceFault(f"the campaign was measured on {campaign.device}, but {devices[0].id} "
                          f"is {devices[0].label}", where=identity,
                          fix="run it on the machine where it started, or start a new one here")
    return Setup(workspace=workspace, id=identity, folder=folder, manifest=manifest, target=task,
                 devices=devices, repo=repo, base_tree=base_tree, trees=folder.trees)


def _target_of(manifest: Manifest, project: Project) -> Target | CommandTarget:
    """Return a project's target. Raises InputError if the campaign's commit lacks its files."""
    clone = Clone(project.git_dir)
    if manifest.target.kind == "command":
        files = clone.files(project.head)
        if not any(matches(path, benchmark_target.editable_globs(manifest)) for path in files):
            _expect_files(manifest, project, clone, benchmark_target.editable_globs(manifest))
        return benchmark_target.sealed_target(manifest, files)
    path = project.path / manifest.target.task
    if not path.is_file():
        raise InputError("no task file", where=str(path), fix="set target.task in the manifest")
    task = task_file.load(path)
    _expect_files(manifest, project, clone, (task.source, manifest.target.task, *task.frozen_files))
    return task


def _expect_files(manifest: Manifest, project: Project, clone: Clone,
                  paths: Sequence[str]) -> None:
    """Raise InputError unless the project's commit or snapshot has the files."""
    submodules.check(clone, project.head, paths)
    files = set(clone.files(project.head))
    for path in paths:
        if path in files:
            continue
        if not (project.path / path).is_file():
            raise InputError(f"there is no file {path}", where=str(project.path))
        why = "is not committed, and the manifest says git_branch: none" \
            if _in_place(manifest) else "is ignored by git"
        raise InputError(f"{path} {why}", where=str(project.path),
                         fix=f"run `git add --force {path} && git commit -m start` there")


def _filled(manifest: Manifest, task: Target | CommandTarget, cards: Sequence[Device],
            identity: str, project: Project) -> Manifest:
    """Return the manifest, with inferred values filled in, that the campaign's folder keeps."""
    branch = {"auto": f"optimize/{identity}", "none": project.branch if manifest.git_commit
              and manifest.execution_mode == "repo" else "none"}.get(
        manifest.git_branch, manifest.git_branch) if project.is_repository else "none"
    if not branch:
        raise InputError("git_branch: none commits to the current branch, but none is checked out",
                         where=str(project.path),
                         fix="run `git switch BRANCH` there, or set git_commit: false")
    return msgspec.structs.replace(
        manifest, pool=load.apply_environment(manifest.pool, os.environ),
        target_backend=manifest.target_backend or _backend(task),
        target_lang=manifest.target_lang or task.language,
        target_gpu=manifest.target_gpu or device_word(cards[0]),
        kernel_source=manifest.kernel_source or task.source,
        git_branch=branch,
        gpu=msgspec.structs.replace(manifest.gpu, device=",".join(card.id for card in cards)),
        created=manifest.created or time.strftime("%Y-%m-%d %H:%M"))


def device_word(device: Device) -> str:
    """Return the part of a campaign's name that identifies a device."""
    name = re.sub(r"(nvidia|amd|instinct|geforce|rtx)", "", device.name.lower())
    return "cpu" if device.kind == "cpu" else re.sub(r"[^a-z0-9]+", "", name) or device.kind


def _backend(task: Target | CommandTarget) -> str:
    return task.language.upper() or "COMMAND"


def _new_folder(workspace: Path, manifest: Manifest, task: Target | CommandTarget,
                device: Device) -> Folder:
    """Make the campaign's folder under the first free name; two processes never get the same."""
    backend = (manifest.target_backend or _backend(task)).lower()
    gpu = manifest.target_gpu or device_word(device)
    stem = re.sub(r"[^A-Za-z0-9_]+", "-", f"{manifest.target_op}_{backend}_{gpu}")
    stem = f"{stem}_{time.strftime('%Y%m%d')}"
    name, number = stem, 1
    while True:
        with contextlib.suppress(FileExistsError):
            return Folder.create(workspace / name)
        number += 1
        name = f"{stem}-{number}"
