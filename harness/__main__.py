"""`python -m harness REQUEST.json`: answer one request with JSON lines on stdout.

Every target that arrives is checked here before anything runs.
"""

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
from harness.errors import DeviceFault, IncumbentFault, InputError, KoptError, os_fault
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
    LoopRequest,
    Progress,
    ReportedLoopRequest,
    ReportedRequest,
    Request,
    TrialLine,
    VerdictLine,
)
from harness.settings import Settings
from harness.target import Target


def write_line(line: Line) -> None:
    sys.stdout.buffer.write(to_json(line) + b"\n")
    sys.stdout.buffer.flush()


def write_progress(stage: str, detail: str, done: float | None) -> None:
    write_line(Progress(stage=stage, detail=detail, done=done))


def answer(request: Request, cancel: threading.Event) -> Line:
    """Check the request's target and return the last line of the answer."""
    if isinstance(request, EvaluateRequest | LoopRequest):
        return answer_kernel(request, cancel)
    validate.check(request.target)
    device = inventory.find(request.device)
    if isinstance(request, ReportedLoopRequest):
        return answer_command_loop(request, device, cancel)
    if isinstance(request, EndToEndRequest):
        return VerdictLine(verdict=whole_program.measure_end_to_end(
            request.target, request.trees, device, request.settings, cancel=cancel,
            progress=write_progress))
    return answer_command(request, device, cancel)


def answer_kernel(request: EvaluateRequest | LoopRequest, cancel: threading.Event) -> Line:
    """Evaluate or search a kernel target."""
    target.check(request.target)
    device = inventory.find(request.device)
    zygote = inherited_zygote(request.target, device, request.settings)
    if isinstance(request, EvaluateRequest):
        return VerdictLine(verdict=evaluate(
            request.target, request.trees, device, request.settings, cancel=cancel, zygote=zygote,
            progress=write_progress))
    return LoopLine(result=loop(
        request.target, request.job, device, request.settings, cancel=cancel, zygote=zygote,
        on_trial=lambda trial: write_line(TrialLine(trial=trial)),
        on_note=lambda note: write_line(Progress(stage="note", detail=note))))


def answer_command(request: ReportedRequest, device: Device, cancel: threading.Event) -> Line:
    """Evaluate a command target; its modules are imported only here."""
    from harness.benchmark.verdict import canary_check
    from harness.benchmark.verdict.benchmark_verdict import evaluate as evaluate_command

    judge = canary_check.check_canary if request.settings.canary else evaluate_command
    return VerdictLine(verdict=judge(request.target, request.trees, device, request.settings,
                                     cancel=cancel, progress=write_progress))


def answer_command_loop(request: ReportedLoopRequest, device: Device,
                        cancel: threading.Event) -> Line:
    """Search the knobs of a command target by the project's own benchmark."""
    from harness.benchmark.search.command_loop import sweep

    return LoopLine(result=sweep(
        request.target, request.job, device, request.settings, repeats=request.repeats,
        cancel=cancel, progress=write_progress,
        on_trial=lambda trial: write_line(TrialLine(trial=trial))))


def inherited_zygote(task: Target, device: Device, settings: Settings) -> Zygote | None:
    """Return the zygote that the parent process passed on, if it fits this request."""
    place = kernel.place_on(device, task.language, scratch=settings.scratch,
                            python=settings.python, env=settings.env)
    kind = kernel.kind_of(place, task.language)
    return None if kind is None else Zygote.inherited(kind)


def main() -> int:
    cancel = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: cancel.set())
    if len(sys.argv) != 2:
        write_line(ErrorLine(what="usage: python -m harness REQUEST.json", exit_code=2))
        return 2
    try:
        try:
            request: Request = from_json(Path(sys.argv[1]).read_bytes(), Request)
        except (OSError, ConvertError) as error:
            raise InputError(f"cannot read the request: {error}", where=sys.argv[1]) from None
        last_line = answer(request, cancel)
    except (KoptError, OSError) as raised:
        fault = os_fault(raised) if isinstance(raised, OSError) else raised
        write_line(ErrorLine(what=fault.what, where=fault.where, fix=fault.fix,
                             exit_code=fault.exit_code, of_device=isinstance(fault, DeviceFault),
                             may_pass=isinstance(fault, IncumbentFault)))
        return fault.exit_code
    write_line(last_line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
