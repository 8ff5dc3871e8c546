"""The first verdict on a drafted task: the kernel itself, judged by its reference, not timed."""

from __future__ import annotations

import ast
import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from engine.discovery.new.draft_kernel import DraftedTarget
from engine.discovery.watched import drafted_target, interpreted_sizes
from engine.verify import harness_client
from engine.verify.harness_client import HarnessFault
from harness.call_trace.watched_calls import PROGRAM_LIMITS, WatchedProgram
from harness.correctness import tolerance
from harness.devices.device import Device
from harness.errors import EnvironmentFault, InputError, KoptError, Refused
from harness.formats.text import plain
from harness.isolation.zygote_client import WarmStart
from harness.requests import EvaluateRequest, Progress
from harness.settings import Settings, Trees
from harness.tasks.target import BASELINE
from harness.verdict import Verdict

OVERWRITTEN = "were overwritten"
"""What a verdict says of a kernel that changed its inputs."""
COPIES = "the adapter copies the inputs, as the backward pass overwrites them; copying is timed too"
DOUBTED = 32
"""An error this many times larger than the order of a sum explains shows another computation."""


@dataclass(frozen=True, kw_only=True)
class FirstCheck:
    """A task that was tried: its verdict, if the harness gave one, and `problem`.

    `problem` is "" if the kernel passed or was not judged. `changes` say how the task was altered.
    """

    drafted: DraftedTarget
    verdict: Verdict | None = None
    problem: str = ""
    reference_fails: bool = False
    """Whether `problem` is the reference's: it raised an error or ended."""
    changes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def correct(self) -> bool:
        return self.verdict is not None and self.verdict.correct

    @property
    def failing(self) -> str:
        """What `problem` is about."""
        return "the reference" if self.reference_fails else "the kernel itself"

    @property
    def is_final(self) -> bool:
        """Whether there is no point in trying other versions of the task.

        It timed out, or its verdict says that it is not judged here.
        """
        return self.verdict is not None and bool(self.verdict.not_judged or any(
            (fact.kind, fact.detail) == ("fault", "timeout") for fact in self.verdict.evidence))

    def describe(self, inputs: str, problem: str) -> str:
        """Return the result in one line, "" if the task was not tried.

        `inputs` says on which inputs it was checked, `problem` what went wrong.
        """
        if self.correct:
            return f"first verdict: correct on {inputs}{self._doubt()}"
        if self.verdict is not None and self.verdict.not_judged:
            return f"first verdict: not judged on this machine: {self.verdict.not_judged}"
        return f"first verdict: {problem}" if self.problem else ""

    def _doubt(self) -> str:
        """Return that a float32 kernel is further from its reference than rounding explains, or "".

        Later verdicts allow what the baseline is off by, up to a limit.
        """
        target, error = self.drafted.target, self.verdict and self.verdict.max_rel_err
        dtypes = {*(arg.dtype for arg in target.args if arg.shape is not None),
                  *target.return_dtypes}
        explained = DOUBTED * tolerance.margin("float32", target.precision)
        if not error or error <= explained or not all(
                dtype in ("float32", "float64") or "int" in dtype for dtype in dtypes):
            return ""
        return f"; but its error is {error:.2g} of the output's scale, more than rounding to " \
            f"float32 explains: does {target.reference} compute the same?"


def settle(drafted: DraftedTarget, fallback: DraftedTarget, project: Path, device: Device, *,
           python: str | None, progress: Callable[[Progress], None]) -> FirstCheck:
    """Return the first version of a task for which the kernel is correct, else the last one tried.

    A version that times out, or whose verdict says that it is not judged here, ends the search.
    Versions are tried in this order: the task itself; its reference in the declared dtypes; both
    with the program's own integers; `fallback`, whose reference is the baseline, without and with
    these integers; `fallback` with outputs that are also read. For Triton's interpreter all of them
    are tried with smaller shapes first; these may not fit each other.
    """
    tried = partial(_settle, project=project, device=device, python=python, progress=progress)
    if device.kind == "cpu" and drafted.target.language == "triton":
        result = tried(*(replace(each, target=interpreted_sizes.with_smaller_shapes(each.target))
                         for each in (drafted, fallback)))
        if result.correct or result.is_final:
            return result
    return tried(drafted, fallback)


def _settle(drafted: DraftedTarget, fallback: DraftedTarget, project: Path, device: Device,
            python: str | None, progress: Callable[[Progress], None]) -> FirstCheck:
    versions: list[tuple[DraftedTarget, str]] = [(drafted, "")]
    if drafted.target.reference != BASELINE:
        versions.append((replace(drafted, target=replace(drafted.target, float64=False)),
                         "the reference runs in the declared dtypes: it fails in float64"))
        versions += list(_recorded(versions))
        by_baseline = [(fallback, "reference: baseline, because the one that was found {problem}")]
        versions += [*by_baseline, *_recorded(by_baseline)]
    else:
        versions += list(_recorded(versions))
    if (inout := drafted_target.outputs_as_inout(fallback.target)) is not None:
        versions.append((replace(fallback, target=inout), "written arguments are also read"))
    began, result, first = time.monotonic(), FirstCheck(drafted=drafted), ""
    with tempfile.TemporaryDirectory(prefix="kopt-") as scratch, contextlib.closing(
            harness_client.warm_start(drafted.target, device, python, {})) as warm:
        for version, change in versions:
            result = check(version, project, device, python, warm, scratch, progress)
            copied = drafted_target.with_copies(version)
            if OVERWRITTEN in result.problem and copied is not None:
                result = check(copied, project, device, python, warm, scratch, progress)
                change = "; ".join(filter(None, (change, COPIES)))
            first = first or result.problem
            result = replace(result, seconds=time.monotonic() - began, changes=tuple(
                filter(None, [change.format(problem=first)])))
            if result.correct or result.is_final:
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


def check(drafted: DraftedTarget, project: Path, device: Device, python: str | None,
          warm: WarmStart, scratch: str, progress: Callable[[Progress], None]) -> FirstCheck:
    """Write the files that a task needs, and judge the kernel itself by it."""
    write_files(drafted, project)
    return judge(drafted, project, device, python, warm, scratch, progress)


def judge(drafted: DraftedTarget, project: Path, device: Device, python: str | None,
          warm: WarmStart, scratch: str, progress: Callable[[Progress], None],
          limit_s: float | None = None) -> FirstCheck:
    """Judge the kernel itself by a task; calls with the same `scratch` compile and tune it once."""
    tree = str(project)
    request = EvaluateRequest(
        target=drafted.target, device=device.id, trees=Trees(
            candidate=tree, incumbent=tree, reference=tree),
        settings=Settings(scratch=scratch, python=python, distributions=("normal",)))
    try:
        verdict = harness_client.evaluate(request, warm=warm, progress=progress,
                                          limit_s=limit_s)
    except HarnessFault as fault:
        failed = "cannot be judged here" if fault.exit_code == EnvironmentFault.exit_code else \
            "fails"
        reference = drafted.target.reference
        if reference == BASELINE or (fault.where, fault.exit_code) != (
                reference, InputError.exit_code):
            return FirstCheck(drafted=drafted, problem=f"{failed}: {fault.what}")
        what = fault.what.removeprefix("the reference ").removeprefix("failed: ")
        return FirstCheck(drafted=drafted, problem=f"{failed}: {what}", reference_fails=True)
    wrong = [f"{row.config_class}: {row.note}" for row in verdict.rows if not row.correct]
    problem = f"fails: {verdict.rejected_reason}" if verdict.rejected_reason else \
        f"disagrees: {'; '.join(wrong[:1])}"
    is_problem = not (verdict.correct or verdict.not_judged)
    return FirstCheck(drafted=drafted, verdict=verdict, problem=problem if is_problem else "")


def write_files(drafted: DraftedTarget, project: Path) -> None:
    """Write the files that a task needs, and remove those of an earlier version."""
    for name in (drafted_target.REFERENCE, drafted_target.ADAPTER, drafted_target.VALUES):
        (project / name).unlink(missing_ok=True)
    drafted.write(project)


_FRAME = re.compile(r'File "([^"]+)", line (\d+)|^(\S+\.py):(\d+): ', re.MULTILINE)
_ERROR = re.compile(r"^(?:E\s+)?((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b.*)$",
                    re.MULTILINE)
_NEEDS_GPU = re.compile(r"compiled with CUDA|active drivers|NVIDIA driver|No CUDA GPUs|"
                        r"[Ii]nterpreter|No HIP GPUs|get_device_prop|CUDA driver|"
                        r"'NoneType' object has no attribute '(_init_handles|n_regs|n_spills|"
                        r"metadata|asm|shared)'")
QUOTES = "\\'\""
_NESTED = re.compile(r"\b(?=(\w+(?:Error|Exception))\(\W*([^()]*))")
_OUTSIDE = re.compile(r"'([^']* outside its tensors, [^']*)'")
"""The error that `harness/child/interpreter/store_bounds.py` raises for a store."""
_MODULE = re.compile(r"No module named '?([\w.]+)'?")


def fault(observed: WatchedProgram, title: str, *, on_gpu: bool) -> KoptError:
    """Return the error for a program that did not call the function, or whose calls all failed."""
    failure = failure_of(observed)
    if not on_gpu and _NEEDS_GPU.search(failure):
        return Refused(f"the program failed: {failure}", where=title, fix=(
            "this machine has no GPU, and Triton's interpreter does not run everything: use a "
            "machine with one"))
    if module := _MODULE.search(failure):
        return Refused(f"the program failed: {failure}", where=title, fix=(
            f"install {module[1].partition('.')[0]} for the program's Python, or start it where "
            "that can be imported"))
    if observed.failed:
        count = len(observed.failed)
        return Refused(("its call" if count == 1 else f"each of {count} calls")
                       + " raised an error" + (f": {failure}" if failure else ""), where=title,
                       fix="give a program that runs without errors")
    if failure:
        return Refused(f"the program failed before it called the function: {failure}", where=title,
                       fix="give a program that runs without errors, such as a test")
    if not observed.python:
        return Refused("the program started no Python that can be watched", where=title,
                       fix="Python started with -I, -E or -S, or without PYTHONPATH, cannot be "
                       "watched")
    notes = f" ({observed.notes[0]})" if observed.notes else _last_line(observed, "; it printed: ")
    return Refused(f"the program never called the function{notes}", where=title, fix=(
        "give a program that calls it in its main thread, outside torch.compile and without a "
        "coverage tool"))


def on_import(observed: WatchedProgram, project: Path, source: str) -> str:
    """Return the line at which a source calls the function when it is imported, "" if none."""
    path = project / source
    guarded = [node for node in ast.parse(path.read_bytes()).body
               if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)]
    lines = [caller.line for caller in observed.callers if caller.function == "<module>"
             and os.path.realpath(caller.file) == os.path.realpath(path) and not any(
                 node.lineno <= caller.line <= (node.end_lineno or 0) for node in guarded)]
    return f"{source}:{min(lines)}" if lines else ""


def failure_of(observed: WatchedProgram) -> str:
    """Return the error that ended a program, with its line in the project; "" if none did."""
    if observed.outcome.ok:
        return ""
    if observed.outcome.ended != "exit":
        return observed.outcome.describe(PROGRAM_LIMITS)
    text = "\n".join(stream.decode(errors="replace")
                     for stream in (observed.outcome.stdout, observed.outcome.stderr))
    errors = _ERROR.findall(text)
    frames = [(match[1] or match[3], match[2] or match[4]) for match in _FRAME.finditer(text)]
    project_lines = [f"{Path(file).name}:{line}" for file, line in frames
                     if "site-packages" not in file and "/lib/python" not in file]
    if not errors:
        return observed.outcome.describe(PROGRAM_LIMITS) + (
            observed.outcome.crash_clue or _last_line(observed, ": "))
    if outside := _OUTSIDE.search(errors[-1]):
        return plain(outside[1], 300)
    return plain(_innermost(errors[-1]), 200) + (f" ({project_lines[-1]})"
                                                 if project_lines else "")


def _last_line(observed: WatchedProgram, prefix: str) -> str:
    """Return the last line that a program printed, on stderr if it printed there; "" if none."""
    printed = (observed.outcome.stderr.strip() or observed.outcome.stdout.strip()).splitlines()
    return prefix + plain(printed[-1].decode(errors="replace"), 200) if printed else ""


def _innermost(error: str) -> str:
    """Return the innermost of the errors that Triton's interpreter wrapped; others as they are."""
    nested = _NESTED.findall(error) if "InterpreterError" in error else []
    kind, text = nested[-1] if nested else ("", "")
    return f"in Triton's interpreter, {kind}: {text.rstrip(QUOTES)}" if nested else error
