"""The first verdict on a drafted task: the kernel itself, judged by its reference, not timed."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
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

    Tried in order: the task itself, its reference in the declared dtypes, then the `fallback`,
    whose reference is the baseline, each also with the program's own integers; at last outputs that
    are read too.
    """
    versions: list[tuple[DraftedTarget, str]] = [(drafted, "")]
    if drafted.target.reference != BASELINE:
        versions.append((_changed(drafted, replace(drafted.target, float64=False)),
                         "the reference gets the declared dtypes: it fails in float64"))
        versions += list(_recorded(versions))
        by_baseline = [(fallback, "reference: baseline, because the one that was found {problem}")]
        versions += [*by_baseline, *_recorded(by_baseline)]
    else:
        versions += list(_recorded(versions))
    if (inout := drafted_target.with_roles(fallback.target)) is not None:
        versions.append((_changed(fallback, inout), "what is written is read as well"))
    began, result, first = time.monotonic(), FirstCheck(drafted=drafted), ""
    with tempfile.TemporaryDirectory(prefix="kopt-") as scratch, contextlib.closing(
            harness_client.warm_start(drafted.target, device, python, {})) as warm:
        for version, change in versions:
            result = check(version, project, device, python, warm, scratch)
            first = first or result.problem
            result = replace(result, seconds=time.monotonic() - began, changes=tuple(
                filter(None, [change.format(problem=first)])))
            if result.correct or (result.verdict is not None and result.verdict.not_judged):
                return result
    return result


def _recorded(versions: Sequence[tuple[DraftedTarget, str]]) -> Iterator[tuple[
        DraftedTarget, str]]:
    """Yield versions with the program's own integers in place of drawn ones."""
    for version, change in versions:
        if (recorded := drafted_target.with_recorded(version)) is not None:
            names = ", ".join(recorded.target.classes[0].data or {})
            yield recorded, "; ".join(filter(None, (change, (
                f"{names}: always the program's own values, kept in {drafted_target.VALUES}, "
                "because with drawn ones the kernel {problem}"))))


def _changed(drafted: DraftedTarget, target: Target) -> DraftedTarget:
    return replace(drafted, target=target)


def check(drafted: DraftedTarget, project: Path, device: Device, python: str | None,
          warm: WarmStart, scratch: str) -> FirstCheck:
    """Judge the kernel itself by a task; in one `scratch` folder it is compiled and tuned once."""
    write_files(drafted, project)
    tree = str(project)
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
    for name in (drafted_target.REFERENCE, drafted_target.ADAPTER, drafted_target.VALUES):
        (project / name).unlink(missing_ok=True)
    for name, text in drafted.files.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_bytes(text.encode() if isinstance(text, str) else text)
