"""Judging and searching straight from a manifest, without a campaign: what the three verbs use."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import msgspec

from engine import manifest as manifests
from engine import patch as patches
from engine import project as projects
from engine.campaign import device_for
from engine.clone import Clone
from engine.hygiene import violations
from engine.lineage import Lineage
from engine.patch import Patch
from harness import knobs, target
from harness.device import Device
from harness.errors import InputError
from harness.evaluate import Settings, Trees
from harness.knobs import Knob, Value
from harness.plan import Plan
from harness.requests import EvaluateRequest
from harness.verdict import Verdict, rejected


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate as the command line gives it: exactly one of these, or none for the base."""

    patch: bytes | None = None
    config: Mapping[str, Value] | None = None
    ref: str | None = None


class Direct:
    """A manifest opened for single verdicts. Use as a context manager; leaves nothing behind.

    `base` names the commit of the project that is the incumbent (its HEAD by default).
    """

    def __init__(self, manifest_path: Path, *, base: str = "HEAD") -> None:
        self.manifest = manifests.load(manifest_path)
        manifests.check_runnable(self.manifest)
        self.project = projects.find(Path(self.manifest.project))
        self._made = tempfile.TemporaryDirectory(prefix="kopt-")
        self.folder = Path(self._made.name)
        self.lineage = Lineage.create(self.folder, "direct", self.project)
        self.base = self._tree_of(base)
        self.target = target.load(self._task())
        self.device: Device = device_for(self.manifest, self.target)

    def __enter__(self) -> Direct:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._made.cleanup()

    @property
    def source(self) -> str:
        return self.lineage.read(self.base, self.target.source).decode(errors="replace")

    def knobs(self) -> tuple[Knob, ...]:
        return knobs.find(self.source, language=self.target.language, where=self.target.source)

    def checkout(self, tree: str) -> Path:
        path = self.folder / "trees" / tree
        if not path.is_dir():
            self.lineage.checkout_tree(tree, path)
        return path

    def candidate(self, trial: Trial) -> tuple[str, Patch] | Verdict:
        """Return the candidate's tree and patch, or the verdict that rejects it unmeasured."""
        try:
            if trial.config is not None:
                return self._configured(trial.config)
            if trial.ref is not None:
                return self._tree_of(trial.ref), self.lineage.diff(self.base,
                                                                   self._tree_of(trial.ref))
            if trial.patch is not None:
                edit = self.manifest.edit or (self.target.source,)
                applied = self.lineage.take(self.base, trial.patch, edit)
                return applied.tree, applied.patch
        except InputError as error:
            return rejected(str(error), device=self.device.name)
        return self.base, Patch()

    def request(self, trial: Trial, *, alpha: float) -> EvaluateRequest | Verdict:
        """Return what to ask the harness, or the verdict on a candidate that breaks the rules."""
        found = self.candidate(trial)
        if isinstance(found, Verdict):
            return found
        tree, patch = found
        edit = self.manifest.edit or (self.target.source,)
        frozen = self.manifest.frozen or (self.target.reference_file, self.manifest.target.task)
        broken = [v for v in violations(patch, edit, frozen) if v.kind != "outside"]
        identity = patches.candidate_id(self.base, patch) if patch else ""
        if broken:
            return rejected(f"{broken[0].path} {broken[0].detail}", candidate_id=identity,
                            device=self.device.name)
        decision = self.manifest.decision
        return EvaluateRequest(
            target=self.target, device=self.device.id,
            trees=Trees(candidate=str(self.checkout(tree)), incumbent=str(self.checkout(self.base)),
                        reference=str(self.checkout(self.base))),
            settings=self.settings(decision.plan(alpha),
                                   candidate_id=identity, same=not patch))

    def settings(self, plan: Plan, *, candidate_id: str = "", same: bool = False) -> Settings:
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        return Settings(scratch=str(scratch), plan=plan, python=self.manifest.python,
                        env=self.manifest.env, candidate_id=candidate_id,
                        incumbent_tree=self.base, always_time=same,
                        test_command=self.manifest.test_command)

    def _configured(self, config: Mapping[str, Value]) -> tuple[str, Patch]:
        """Set knobs in the source; names that are no knobs are dropped (additive compatibility)."""
        known = {knob.name for knob in self.knobs()}
        wanted = {name: value for name, value in config.items() if name in known}
        text = knobs.apply(self.source, wanted, language=self.target.language)
        tree = self.folder / "configured"
        self.lineage.checkout_tree(self.base, tree)
        (tree / self.target.source).write_text(text)
        patch = self.lineage.capture(tree, self.base, (self.target.source,))
        return self.lineage.apply(self.base, patch).tree if patch else self.base, patch

    def _task(self) -> Path:
        path = self.folder / "task.yaml"
        path.write_bytes(self.lineage.read(self.base, self.manifest.target.task))
        return path

    def _tree_of(self, ref: str) -> str:
        """Return the tree of a commit of the project, brought into our clone as a patch."""
        if ref == "HEAD":
            return self.lineage.tree_of(self.lineage.base)
        theirs = Clone(self.project.git_dir)
        patch = theirs.diff(self.project.head, theirs.resolve(ref))
        if not patch:
            return self.lineage.tree_of(self.lineage.base)
        return self.lineage.apply(self.lineage.base, patch).tree
