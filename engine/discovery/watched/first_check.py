"""The first verdict on a drafted task: the kernel itself, judged by its reference, not timed."""

from __future__ import annotations

import contextlib
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from engine.discovery.watched import drafted_target
from engine.discovery.watched.drafted_target import DraftedTarget
from engine.verify import harness_client
from engine.verify.harness_client import HarnessFault
from harness.devices.device import Device
from harness.isolation.zygote_client import WarmStart
from harness.requests import EvaluateRequest
from harness.settings import Settings, Trees
from harness.tasks.target import BASELINE, Target
from harness.verdict import Verdict


@dataclass(frozen=True, kw_only=True)
class FirstCheck:
    """A task that was tried: its verdict, or why there is none; `changes` say what was altered."""

    drafted: DraftedTarget
    verdict: Verdict | None = None
    problem: str = ""
    changes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def correct(self) -> bool:
        return self.verdict is not None and self.verdict.correct


def settle(drafted: DraftedTarget, fallback: DraftedTarget, project: Path, device: Device, *,
           python: str | None) -> FirstCheck:
    """Return the first version of a task on which the kernel is right, else the last one.

    Tried in order: the task itself, its reference in the declared dtypes, outputs that are read
    too, then the `fallback`, whose reference is the baseline.
    """
    versions: list[tuple[DraftedTarget, str]] = [(drafted, "")]
    if drafted.target.reference != BASELINE:
        versions.append((_changed(drafted, replace(drafted.target, float64=False)),
                         "the reference gets the declared dtypes: it fails in float64"))
        versions.append((fallback, "reference: baseline, because the one that was found {problem}"))
    if (inout := drafted_target.with_roles(fallback.target)) is not None:
        versions.append((_changed(fallback, inout), "what is written is read as well"))
    began, result, first = time.monotonic(), FirstCheck(drafted=drafted), ""
    with contextlib.closing(harness_client.warm_start(drafted.target, device, python, {})) as warm:
        for version, change in versions:
            result = check(version, project, device, python, warm)
            first = first or result.problem
            result = replace(result, seconds=time.monotonic() - began, changes=tuple(
                filter(None, [change.format(problem=first)])))
            if result.correct or (result.verdict is not None and result.verdict.not_judged):
                return result
    return result


def _changed(drafted: DraftedTarget, target: Target) -> DraftedTarget:
    return replace(drafted, target=target)


def check(drafted: DraftedTarget, project: Path, device: Device, python: str | None,
           warm: WarmStart) -> FirstCheck:
    """Write a task's files and judge its kernel once on normal inputs."""
    write_files(drafted, project)
    tree = str(project)
    with tempfile.TemporaryDirectory(prefix="kopt-") as scratch:
        request = EvaluateRequest(
            target=drafted.target, device=device.id, trees=Trees(
                candidate=tree, incumbent=tree, reference=tree),
            settings=Settings(scratch=scratch, python=python, distributions=("normal",)))
        try:
            verdict = harness_client.evaluate(request, warm=warm)
        except HarnessFault as fault:
            return FirstCheck(drafted=drafted, problem=f"fails: {fault.what}")
    wrong = [f"{row.config_class}: {row.note}" for row in verdict.rows if not row.correct]
    return FirstCheck(drafted=drafted, verdict=verdict, problem="" if verdict.correct else (
        f"disagrees: {verdict.rejected_reason or '; '.join(wrong[:1])}"))


def write_files(drafted: DraftedTarget, project: Path) -> None:
    """Write the files beside the task, and remove those of an earlier version."""
    for name in (drafted_target.REFERENCE, drafted_target.ADAPTER):
        (project / name).unlink(missing_ok=True)
    for name, text in drafted.files.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
