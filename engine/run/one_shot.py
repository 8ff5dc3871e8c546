"""Single verdicts and searches from a manifest, without a campaign: propose, evaluate, loop."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

import msgspec

from engine.campaign import declared_knobs, shape_weights, task_notes
from engine.campaign.judged_target import JudgedTarget, devices_for, read_target
from engine.manifest import benchmark_target, load
from engine.repository import current_files
from engine.repository.campaign_repo import CampaignRepo
from engine.repository.clone import Change, Clone, between
from engine.repository.git import locate
from engine.repository.patches import patch as patches
from engine.repository.patches.hygiene import notes_on_dropped, why_empty
from engine.verify.fleet import Fleet
from engine.verify.fleet_device import DeviceNotice
from harness.benchmark.runs import stopping_rule
from harness.errors import InputError
from harness.isolation.zygote_client import WarmStart
from harness.requests import EvaluateRequest, ReportedRequest
from harness.search.space.tunable_source import TunableSource
from harness.settings import Settings, Trees
from harness.tasks.target import Target
from harness.timing.plan import Effort, Plan
from harness.verdict import Verdict, rejected


class OneShotCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate from the command line: one field is set, or none for the project's files."""

    patch: bytes | None = None
    config: Mapping[str, object] | None = None
    ref: str | None = None
    source: bytes | None = None
    """The new text of the kernel's source."""


class OneShot:
    """A manifest opened for verdicts, a context manager.

    `base` names the incumbent's commit; by default it is the project's files as they are now.
    """

    def __init__(self, manifest_path: Path, *, base: str = "") -> None:
        manifest = load.load(manifest_path)
        benchmark_target.check_runnable(manifest)
        weights_file = shape_weights.read(manifest)
        self._temporary = tempfile.TemporaryDirectory(prefix="kopt-")
        self.folder = Path(self._temporary.name)
        self.project = declared_knobs.declare(
            current_files.take(Path(manifest.project), self.folder), manifest, self.folder)
        self.repo = CampaignRepo.create(self.folder, "direct", self.project, carry=manifest.carry)
        tree = self._tree_of(base) if base else self.repo.tree_of(self.repo.base)
        target, self._target_notes = shape_weights.apply(
            read_target(manifest, self.repo, tree, self.folder),
            weights_file.weights if weights_file else None)
        self._target_notes = (*self._target_notes,
                              *task_notes.ignored_pragmas(target, self.repo, tree))
        self.judged = JudgedTarget(
            manifest=manifest, target=target, devices=devices_for(manifest, target),
            repo=self.repo, base_tree=tree, trees=self.folder / "trees")
        self.notes = list(self._target_notes)
        """Notes for people about the latest candidate."""

    def __enter__(self) -> OneShot:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def fleet(self, news: Callable[[DeviceNotice], None]) -> Fleet:
        """Return the manifest's devices as a fleet that waits for idle ones, as in a campaign."""
        gpu = self.judged.manifest.gpu
        return Fleet([(device, WarmStart(None)) for device in self.judged.devices],
                     retry_s=gpu.retry_s, limit_s=gpu.limit_s, news=news,
                     fix="free one, then try again")

    @property
    def language(self) -> str:
        """The kernel's language, or `command`."""
        return "command" if self.judged.command is not None else self.judged.target.language

    @cached_property
    def source(self) -> TunableSource:
        """The target's source file and its knobs. Raises InputError if no file or no text."""
        path = self.judged.target.source
        if not path:
            raise InputError("no source is named whose knobs can be searched",
                             where="kernel_source")
        try:
            text = self.repo.read(self.judged.base_tree, path).decode()
        except UnicodeDecodeError:
            raise InputError("the source is not UTF-8 text", where=path) from None
        return TunableSource.parse(text, language=self.judged.target.language,
                                   path=path)

    def candidate(self, trial: OneShotCandidate) -> Change | Verdict:
        """Return the candidate's change, or the verdict that rejects it without measuring."""
        self.notes = list(self._target_notes)
        try:
            change = self._change(trial)
        except InputError as error:
            return rejected(str(error), device=self.judged.device.name)
        if isinstance(change, Verdict):
            return change
        dropped = change.patch.dropped
        if not change and dropped:
            return rejected(why_empty(dropped), device=self.judged.device.name)
        self.notes += notes_on_dropped(dropped)
        return change

    def _change(self, trial: OneShotCandidate) -> Change | Verdict:
        if trial.config is not None:
            return self._configured(trial.config)
        if trial.ref is not None:
            return between(self.repo, self.judged.base_tree, self._tree_of(trial.ref))
        if trial.source is not None:
            return self._with_source(self.judged.target.source, trial.source)
        if trial.patch is not None:
            return self.repo.take(self.judged.base_tree, trial.patch, self.judged.edit)
        return between(self.repo, self.judged.base_tree, self.repo.base)

    def request(self, trial: OneShotCandidate, *, alpha: float,
                effort: Effort = "normal") -> EvaluateRequest | ReportedRequest | Verdict:
        """Return the harness's request, or the verdict on a candidate that breaks the rules."""
        change = self.candidate(trial)
        if isinstance(change, Verdict):
            return change
        judged = self.judged
        identity = patches.candidate_id(judged.base_tree, change.patch) if change else ""
        if broken := judged.breach(change.patch):
            return rejected(broken, candidate_id=identity, device=judged.device.name)
        plan = judged.manifest.decision.plan(alpha).with_effort(effort)
        base = str(judged.tree(judged.base_tree))
        trees = Trees(candidate=str(judged.tree(change.tree)), incumbent=base, reference=base)
        if judged.command is not None:
            plan = stopping_rule.plan_for(plan, judged.manifest.budget.pairs)
            return ReportedRequest(target=judged.command, device=judged.device.id, trees=trees,
                                   settings=self.settings(plan, candidate_id=identity))
        assert isinstance(judged.target, Target)
        return EvaluateRequest(target=judged.target, device=judged.device.id, trees=trees,
                               settings=self.settings(plan, candidate_id=identity, same=not change))

    def settings(self, plan: Plan, *, candidate_id: str = "", same: bool = False) -> Settings:
        """Return the harness's settings; with `same` a candidate without a change is timed too."""
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        return Settings(scratch=str(scratch), plan=plan, python=self.judged.manifest.python,
                        env=self.judged.manifest.env, candidate_id=candidate_id,
                        incumbent_tree=self.judged.base_tree, always_time=same,
                        test_command=self.judged.manifest.test_command,
                        test_wall_s=self.judged.manifest.limits.test_s)

    def _configured(self, config: Mapping[str, object]) -> Change | Verdict:
        """Return the change that sets knobs; unknown knobs, of another version, are only noted.

        A configuration without any known knob is rejected: it would judge the unchanged code.
        """
        checked, judged = self.source.check(config), self.judged
        self.notes += [f"no knob {name!r}: ignored" for name in checked.dropped]
        faults = checked.faults
        if config and len(checked.dropped) == len(config):
            knobs = ", ".join(knob.name for knob in self.source.knobs) or "none"
            self.notes = list(self._target_notes)
            faults = (f"{checked.refusal} in {self.source.path}; its knobs: {knobs}",)
        if faults:
            content = f"{judged.base_tree}\n{sorted(map(repr, config.items()))}"
            return rejected("; ".join(faults), device=judged.device.name,
                            candidate_id=hashlib.sha256(
                                content.encode(errors="replace")).hexdigest()[:12])
        return self._with_source(self.source.path, self.source.apply(checked.config).encode())

    def _with_source(self, path: str, text: bytes) -> Change:
        if not path:
            raise InputError("no source is named that a file could replace", where="kernel_source")
        tree = Path(tempfile.mkdtemp(prefix="configured-", dir=self.folder))
        base = self.judged.base_tree
        self.repo.checkout_tree(base, tree)
        (tree / path).write_bytes(text)
        return self.repo.capture(tree, base, (path,))

    def _tree_of(self, ref: str) -> str:
        """Return the project's tree in a commit of its repository, copied into our clone."""
        path = self.project.path
        location = locate(path)
        if location is None or location.work_tree is None:
            raise InputError(f"no commit {ref!r}: the project is not in a git repository",
                             where=str(path))
        source, prefix = Clone(location.git_dir), path.relative_to(location.work_tree).as_posix()
        commit = source.resolve(ref)
        if prefix == ".":
            return self.repo.import_tree(source, source.tree_of(commit), source.git.find("HEAD"))
        tree = source.git.find(f"{commit}:{prefix}")
        if not tree:
            raise InputError(f"the folder {prefix} is not in the commit {ref!r}", where=str(path))
        return self.repo.import_tree(source, tree, "")
