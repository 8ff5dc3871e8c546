"""`python -m harness REQUEST.json`: check and answer one request with JSON lines on stdout."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

from harness import requests
from harness.benchmark.spec import validate
from harness.devices import cpu, inventory
from harness.devices.device import Device
from harness.errors import DeviceFault, InputError, KoptError, os_fault
from harness.evaluate.evaluate import evaluate
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.isolation import device_lock, raw_outputs, turn_watch
from harness.loop.loop import loop
from harness.requests import ErrorLine, Line, LoopLine, Progress, Request, TrialLine, VerdictLine
from harness.runners.kept_oracle import OracleShelf
from harness.search.trials.trials import Trial
from harness.tasks import task_file
from harness.timing.outcome import row_interval, row_word
from harness.verdict import Row

VAGUE = 0.2
"""A class's log-ratio is poorly known if its interval is wider than this."""


def write_line(line: Line) -> None:
    sys.stdout.buffer.write(to_json(line) + b"\n")
    sys.stdout.buffer.flush()


class ProgressLines:
    """Writes the stages of an answer; waiting for another process's measurement is one of them."""

    def __init__(self) -> None:
        self._stage, self._lock = Progress(stage="starting"), threading.Lock()

    def __call__(self, stage: str, detail: str, done: float | None) -> None:
        with self._lock:
            line = Progress(stage=stage, detail=detail, done=done)
            if stage not in ("waiting", "note"):
                self._stage = line
            write_line(line)

    def show_wait(self, text: str) -> None:
        """Write what the answer waits for; for "" write the current stage again."""
        with self._lock:
            write_line(replace(self._stage, stage="waiting", detail=text) if text else self._stage)

    def write_trial(self, trial: Trial) -> None:
        with self._lock:
            write_line(TrialLine(trial=trial))


def answer(request: Request, cancel: threading.Event) -> Line:
    """Check the request's target and return the last line of the answer."""
    if isinstance(request, requests.EvaluateRequest | requests.LoopRequest):
        task_file.check(request.target)
    else:
        validate.check(request.target)
    device, progress = inventory.find(request.device), ProgressLines()
    with turn_watch.watched(device_lock.turnstile(), progress.show_wait) \
            if device.kind == "cpu" else contextlib.nullcontext():
        if isinstance(request, requests.EvaluateRequest | requests.LoopRequest):
            return answer_kernel(request, device, cancel, progress)
        return answer_command(request, device, cancel, progress)


def with_load(line: Line, device: str) -> Line:
    """Add a note, if the CPU is busy, to a verdict on a CPU that is vague about a class."""
    if not isinstance(line, VerdictLine) or not any(map(_is_vague, line.verdict.rows)) \
            or inventory.find(device).kind != "cpu":
        return line
    notes = (*line.verdict.notes, *filter(None, [cpu.load_note()]))
    return VerdictLine(verdict=replace(line.verdict, notes=notes))


def _is_vague(row: Row) -> bool:
    """Return whether a class is uncertain, or slower by a poorly known amount."""
    low, high = row_interval(row)
    return row_word(row) == "uncertain" or (
        row.outcome == "slower" and low is not None and high is not None and high - low > VAGUE)


def answer_kernel(request: requests.EvaluateRequest | requests.LoopRequest, device: Device,
                  cancel: threading.Event, progress: ProgressLines) -> Line:
    """Evaluate or search a kernel target."""
    if isinstance(request, requests.EvaluateRequest):
        return VerdictLine(verdict=evaluate(
            request.target, request.trees, device, request.settings, cancel=cancel,
            progress=progress, shelf=OracleShelf.inherited()))
    return LoopLine(result=loop(
        request.target, request.job, device, request.settings, cancel=cancel,
        on_trial=progress.write_trial, on_note=lambda note: progress("note", note, None),
        on_wait=lambda text: progress("waiting", text, None)))


def answer_command(request: requests.ReportedRequest | requests.ReportedLoopRequest
                   | requests.EndToEndRequest, device: Device, cancel: threading.Event,
                   progress: ProgressLines) -> Line:
    """Evaluate or search a command target; its modules are imported only here."""
    from harness.benchmark.search import command_loop
    from harness.benchmark.verdict import benchmark_verdict, canary_check, whole_program

    settings = request.settings
    if isinstance(request, requests.ReportedLoopRequest):
        return LoopLine(result=command_loop.sweep(
            request.target, request.job, device, settings, repeats=request.repeats, cancel=cancel,
            progress=progress, on_trial=progress.write_trial))
    if isinstance(request, requests.EndToEndRequest):
        return VerdictLine(verdict=whole_program.measure_end_to_end(
            request.target, request.trees, device, settings, cancel=cancel,
            progress=progress))
    judge = canary_check.check_canary if settings.canary else benchmark_verdict.evaluate
    return VerdictLine(verdict=judge(request.target, request.trees, device, settings,
                                     cancel=cancel, progress=progress))


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
        with raw_outputs.recording(request.settings.outputs):
            last_line = with_load(answer(request, cancel), request.device)
    except (KoptError, OSError) as raised:
        fault = os_fault(raised) if isinstance(raised, OSError) else raised
        write_line(ErrorLine(what=fault.what, where=fault.where, fix=fault.fix,
                             exit_code=fault.exit_code, of_device=isinstance(fault, DeviceFault),
                             may_pass=fault.may_pass))
        return fault.exit_code
    write_line(last_line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
