"""`python -m harness REQUEST.json`: answer one request with JSON lines on stdout."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from harness import target
from harness.benchmark.spec import validate
from harness.benchmark.verdict import whole_program
from harness.compile import kernel
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import DeviceFault, IncumbentFault, InputError, KoptError, of_os
from harness.evaluate.evaluate import evaluate
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.isolation.zygote_client import Zygote
from harness.loop.loop import loop
from harness.requests import (
    EndToEndRequest,
    ErrorLine,
    EvaluateRequest,
    Line,
    LoopLine,
    Progress,
    ReportedLoopRequest,
    ReportedRequest,
    Request,
    TrialLine,
    VerdictLine,
)
from harness.settings import Settings
from harness.target import Target


def say(line: Line) -> None:
    sys.stdout.buffer.write(to_json(line) + b"\n")
    sys.stdout.buffer.flush()


def tell(stage: str, detail: str, done: float | None) -> None:
    say(Progress(stage=stage, detail=detail, done=done))


def answer(request: Request, cancel: threading.Event) -> Line:
    if isinstance(request, ReportedRequest):
        return reported(request, cancel)
    if isinstance(request, ReportedLoopRequest):
        return reported_loop(request, cancel)
    if isinstance(request, EndToEndRequest):
        return VerdictLine(verdict=whole_program.measure(
            request.target, request.trees, inventory.find(request.device), request.settings,
            cancel=cancel, progress=tell))
    target.check(request.target)
    device = inventory.find(request.device)
    zygote = inherited(request.target, device, request.settings)
    if isinstance(request, EvaluateRequest):
        verdict = evaluate(
            request.target, request.trees, device, request.settings, cancel=cancel, zygote=zygote,
            progress=tell)
        return VerdictLine(verdict=verdict)
    result = loop(request.target, request.job, device, request.settings, cancel=cancel,
                  zygote=zygote, on_trial=lambda trial: say(TrialLine(trial=trial)),
                  on_note=lambda note: say(Progress(stage="note", detail=note)))
    return LoopLine(result=result)


def reported(request: ReportedRequest, cancel: threading.Event) -> Line:
    """Answer with the verdict on a command target; its modules are imported for nothing else."""
    from harness.benchmark.verdict import canary_check
    from harness.benchmark.verdict.benchmark_verdict import evaluate as evaluate_command

    validate.check(request.target)
    if request.settings.canary:
        return VerdictLine(verdict=canary_check.check_canary(
            request.target, request.trees, inventory.find(request.device), request.settings,
            cancel=cancel, progress=tell))
    return VerdictLine(verdict=evaluate_command(
        request.target, request.trees, inventory.find(request.device), request.settings,
        cancel=cancel, progress=tell))


def reported_loop(request: ReportedLoopRequest, cancel: threading.Event) -> Line:
    """Answer with where a search by a project's own benchmark ended."""
    from harness.benchmark.search.command_loop import sweep

    validate.check(request.target)
    return LoopLine(result=sweep(
        request.target, request.job, inventory.find(request.device), request.settings,
        repeats=request.repeats, cancel=cancel, progress=tell,
        on_trial=lambda trial: say(TrialLine(trial=trial))))


def inherited(of: Target, device: Device, settings: Settings) -> Zygote | None:
    """Return the zygote that this process was given by its owner, if it was, and it fits."""
    place = kernel.place_on(device, of.language, scratch=settings.scratch,
                            python=settings.python, env=settings.env)
    kind = kernel.kind_of(place, of.language)
    return None if kind is None else Zygote.inherited(kind)


def main() -> int:
    cancel = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: cancel.set())
    if len(sys.argv) != 2:
        say(ErrorLine(what="usage: python -m harness REQUEST.json", exit_code=2))
        return 2
    try:
        try:
            request: Request = from_json(Path(sys.argv[1]).read_bytes(), Request)
        except (OSError, ConvertError) as error:
            raise InputError(f"cannot read the request: {error}", where=sys.argv[1]) from None
        last = answer(request, cancel)
    except (KoptError, OSError) as raised:
        fault = of_os(raised) if isinstance(raised, OSError) else raised
        say(ErrorLine(what=fault.what, where=fault.where, fix=fault.fix,
                      exit_code=fault.exit_code, of_device=isinstance(fault, DeviceFault),
                      may_pass=isinstance(fault, IncumbentFault)))
        return fault.exit_code
    say(last)
    return 0


if __name__ == "__main__":
    sys.exit(main())
