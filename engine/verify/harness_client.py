"""Sends requests to harness processes, which run outside the engine's interpreter lock."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import harness
from harness.benchmark.runs import result_table
from harness.compile.place import kind_of, place_on
from harness.devices.device import Device
from harness.errors import KoptError
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.isolation import device_lock, guard, shared_zygotes
from harness.isolation.process_outcome import Limits
from harness.isolation.shared_zygotes import SUPERVISORS
from harness.isolation.zygote_client import VARIABLE, WarmStart, Zygote, ZygoteKind
from harness.requests import (
    EndToEndRequest,
    ErrorLine,
    EvaluateRequest,
    Line,
    LoopLine,
    LoopRequest,
    Progress,
    ReportedLoopRequest,
    ReportedRequest,
    Request,
    TrialLine,
    VerdictLine,
)
from harness.runners import kept_oracle
from harness.runners.kept_oracle import OracleShelf
from harness.search.trials.trials import LoopResult, Trial
from harness.tasks.target import Target
from harness.verdict import Verdict, rejected

HARNESS_LIMITS = Limits(wall_s=3600.0, output_bytes=16 << 20)
RUNNERS_END_S = 20.0
THREADS = {"OMP_NUM_THREADS": "1"}
USUAL_BUDGET = 24
"""Trials of a loop for which HARNESS_LIMITS suffice; for more trials they grow in proportion."""
COMMAND_RUNS = 100
"""Runs of a project's commands in one verdict, at most; each may take the target's `timeout_s`."""
RUNS_OF_TRIAL = 4
"""Runs of a project's commands in one trial: setup, build, and the benchmark of both sides."""


def warm_start(target: Target, device: Device, python: str | None,
               env: Mapping[str, str]) -> WarmStart:
    """Return the warm start with which the harness processes of one target share their imports."""
    place = place_on(device, target.language, scratch="", python=python, env=env)
    return WarmStart(kind_of(place, target.language),
                     yields=device_lock.turnstile() if device.kind == "cpu" else None)


class HarnessFault(KoptError):
    """The harness gave no answer. Exit code 2: bad task, 3: machine fault, 1: the harness died."""

    def __init__(self, line: ErrorLine) -> None:
        super().__init__(line.what, where=line.where, fix=line.fix)
        self.exit_code = line.exit_code
        self.of_device, self.may_pass = line.of_device, line.may_pass


def evaluate(request: EvaluateRequest | ReportedRequest | EndToEndRequest, *,
             progress: Callable[[Progress], None] | None = None,
             cancel: threading.Event | None = None, warm: WarmStart | None = None,
             shelf: OracleShelf | None = None, limit_s: float | None = None) -> Verdict:
    """Return the verdict on one candidate, a rejection if it was cancelled. Raises HarnessFault.

    It takes at most `limit_s` seconds, plus what a project's commands may take. The shelf keeps the
    oracle of a kernel's verdict for the next one.
    """
    limits = HARNESS_LIMITS if limit_s is None else replace(HARNESS_LIMITS, wall_s=limit_s)
    if isinstance(request, ReportedRequest | EndToEndRequest):
        limits = replace(limits, wall_s=limits.wall_s + COMMAND_RUNS * request.target.timeout_s)
    last = _ask(request, limits, progress, None, cancel, warm, shelf)
    if isinstance(last, VerdictLine):
        return last.verdict
    return rejected("the harness was stopped", candidate_id=request.settings.candidate_id)


def loop(request: LoopRequest | ReportedLoopRequest, *,
         on_trial: Callable[[Trial], None] | None = None,
         progress: Callable[[Progress], None] | None = None,
         cancel: threading.Event | None = None, warm: WarmStart | None = None,
         ) -> LoopResult | None:
    """Return the loop's result, None if it was cancelled. Raises HarnessFault."""
    share = max(1.0, request.job.budget / USUAL_BUDGET)
    limits = replace(HARNESS_LIMITS, wall_s=HARNESS_LIMITS.wall_s * share,
                     output_bytes=int(HARNESS_LIMITS.output_bytes * share))
    if isinstance(request, ReportedLoopRequest):
        runs = RUNS_OF_TRIAL * (request.job.budget + COMMAND_RUNS)
        limits = replace(limits, wall_s=limits.wall_s + runs * request.target.timeout_s)
    last = _ask(request, limits, progress, on_trial, cancel, warm)
    return last.result if isinstance(last, LoopLine) else None


def _ask(request: Request, limits: Limits,
         progress: Callable[[Progress], None] | None, on_trial: Callable[[Trial], None] | None,
         cancel: threading.Event | None, warm: WarmStart | None,
         shelf: OracleShelf | None = None) -> VerdictLine | LoopLine | None:
    scratch = Path(request.settings.scratch)
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / "request.json"
    path.write_bytes(to_json(request))
    answers: list[VerdictLine | LoopLine | ErrorLine] = []

    def take(raw: bytes) -> None:
        try:
            line: Line = from_json(raw, Line)
        except ConvertError:
            raise HarnessFault(ErrorLine(what="the harness printed an unreadable line",
                                         exit_code=1)) from None
        if isinstance(line, Progress):
            if progress is not None:
                progress(line)
        elif isinstance(line, TrialLine):
            if on_trial is not None:
                on_trial(line.trial)
        else:
            answers.append(line)

    zygotes = [zygote for zygote in (_zygote_for(request, warm), shared_zygotes.zygote(SUPERVISORS))
               if zygote is not None]
    with _wait_for_runners() as held:
        passed = " ".join(zygote.variable(held) for zygote in zygotes)
        outcome = guard.run(
            [sys.executable, "-m", "harness", str(path)], cwd=scratch, limits=limits,
            on_line=take, cancel=cancel, zygote=shared_zygotes.zygote(_harness_kind()),
            program=str(Path(harness.__file__).with_name("__main__.py")), words=[str(path)],
            env=environment() | {VARIABLE: passed} | (
                {kept_oracle.VARIABLE: shelf.variable} if shelf else {}),
            pass_fds=[*(zygote.descriptor for zygote in zygotes), held,
                      *(shelf.descriptors if shelf else ())])
    answer = answers[-1] if answers else None
    if isinstance(answer, ErrorLine):
        raise HarnessFault(answer)
    if answer is None and not (cancel is not None and cancel.is_set()):
        last = outcome.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise HarnessFault(ErrorLine(what=f"the harness {outcome.describe(limits)}",
                                     fix=" ".join(last), exit_code=1,
                                     may_pass=outcome.was_killed))
    return answer


def _zygote_for(request: Request, warm: WarmStart | None) -> Zygote | None:
    """Return the zygote, if any, that forks a harness process's runners or table readers."""
    if isinstance(request, EvaluateRequest | LoopRequest):
        return warm.zygote() if warm else None
    return result_table.reading_zygote(request.settings.python)


def _harness_kind() -> ZygoteKind:
    """Return the kind of zygote that has imported the harness, which takes 0.5 s of CPU time."""
    return ZygoteKind(python=sys.executable, language="", modules=("harness.__main__",),
                      path=_root(), env=tuple(sorted(guard.clean_env(THREADS).items())))


@contextmanager
def _wait_for_runners() -> Iterator[int]:
    """Yield a descriptor for forked runners, and wait at the end until none of them holds it.

    A harness process that was killed leaves its runners to their own supervisors.
    """
    ours, theirs = os.pipe()
    try:
        yield theirs
    finally:
        os.close(theirs)
        select.select([ours], [], [], RUNNERS_END_S)  # end of file: no runner holds `theirs`
        os.close(ours)


def environment() -> dict[str, str]:
    """Return a clean environment for harness processes, which import this harness."""
    names = ("KOPT_LOCK_DIR", device_lock.OWNER, "XDG_CACHE_HOME", "HOME")
    inherited = {name: os.environ[name] for name in names if name in os.environ}
    return guard.clean_env({**inherited, **THREADS, "PYTHONPATH": _root()})


def _root() -> str:
    return str(Path(harness.__file__).resolve().parent.parent)
