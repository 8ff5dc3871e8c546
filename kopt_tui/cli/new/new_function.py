"""`kopt new FILE:FUNCTION -- PROGRAM`: drafts a task from the calls that a program makes.

Without a program, --shape gives the tensors' shapes and kopt calls the function itself.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from engine.campaign import declared_knobs
from engine.discovery.new import knob_trials
from engine.discovery.new.draft_kernel import dump_task, parse_config_class
from engine.discovery.project import sources
from engine.discovery.watched import (
    draft_task,
    drafted_target,
    entry_source,
    first_check,
    shape_program,
    submission_program,
)
from engine.discovery.watched.draft_task import CallGroup, TaskDraft
from engine.discovery.watched.entry_source import EntrySource
from engine.discovery.watched.expected import reference_source
from engine.discovery.watched.expected.reference_source import FoundReference
from engine.discovery.watched.first_check import FirstCheck
from harness.call_trace import watched_calls
from harness.call_trace.watched_calls import WatchedFunction, WatchedProgram
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import InputError, Refused
from harness.formats import shell_command
from harness.formats.quantities import counted
from harness.isolation import device_lock
from harness.isolation.device_lock import DeviceLock
from harness.tasks.target import Language
from kopt_tui.cli.new import new_facts, new_kernel
from kopt_tui.cli.new.parameter_list import NewManifest, pairs
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.stage_line import stages
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean

MOST_GROUPS = 6


@dataclass(frozen=True, kw_only=True)
class WatchedKernel:
    """The function, the device and the Python of one `kopt new`; `title` names it in messages."""

    project: Path
    source: str
    text: str
    entry: EntrySource
    device: Device
    python: str | None
    is_triton: bool

    @property
    def title(self) -> str:
        return f"{self.source}:{self.entry.lines[0]}, {self.entry.entry}"

    @property
    def language(self) -> Language:
        return "triton" if self.is_triton else "python"

    @property
    def interpret(self) -> bool:
        return self.is_triton and self.device.kind == "cpu"


def add_watch_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a Python or Triton function")
    group.add_argument("--dtype", metavar="[NAME=]DTYPE", action="append", default=[],
                       help="with --shape: the tensors' dtype, or one tensor's (default float32)")
    group.add_argument("--calls", metavar="N", type=int, default=None,
                       help="which kind of call the task describes, if the program makes several, "
                       "by the number that kopt new prints (default: kopt chooses)")
    group.add_argument("--backward", action="store_true",
                       help="treat the gradients of tensors that require them as outputs too")


def make(args: argparse.Namespace, prompt: Prompt, project: Path, path: Path) -> NewManifest:
    """Return the manifest; writes the task and the files beside it. Raises KoptError."""
    task_file = args.task or "task.yaml"
    if (project / task_file).exists() and not args.force:
        raise Refused("the task already exists", where=str(project / task_file),
                      fix="--force overwrites it, --task FILE writes another")
    kernel = _kernel(args, prompt, project)
    to = sys.stderr if args.json or prompt.interactive else sys.stdout
    if kernel.interpret:
        print_text("no GPU here: Triton runs in its interpreter on the CPU (TRITON_INTERPRET=1), "
                   "also in the program, which gets the CPU where it asks for CUDA", to)
    if args.command:
        print(f"running {clean(shlex.join(args.command))}", file=to, flush=True)
    observed = _observe(kernel, args)
    elsewhere = entry_source.other_files(observed.kernels, project, args.source)
    kernel = replace(kernel, is_triton="triton" in kernel.text or bool(elsewhere))
    calls = draft_task.visible(observed.calls, kernel.entry)
    groups = draft_task.groups(calls)
    group = _chosen(groups, args.calls, kernel)
    drafted = draft_task.draft(group, kernel.entry, kernel.title, backward=args.backward)
    if args.first_check:
        print(new_kernel.ANNOUNCEMENT, file=to, flush=True)
    result = _settled(kernel, args, prompt, observed, group, drafted)
    first_check.write_files(result.drafted, project)
    (project / task_file).write_text(dump_task(result.drafted.target), encoding="utf-8")
    (project / declared_knobs.PATCH).unlink(missing_ok=True)
    with stages(quiet=args.json) as progress:
        proposed = knob_trials.declare(
            result.drafted.target, project, kernel.device, python=kernel.python,
            progress=progress) if result.correct else ()
    lines = list(_lines(kernel, observed, groups, group, drafted, result))
    for line in (*lines, *knob_trials.describe(proposed)):
        print_text(clean(line), to, 4)
    args.task = task_file
    if elsewhere:
        args.set = [f"edit={','.join((args.source, *elsewhere))}", *args.set]
        print_text(f"- candidates may also change the kernels in {', '.join(elsewhere)}", to, 4)
    if kernel.python is not None:
        args.set = [*args.set, f"python={kernel.python}"]
    new = new_kernel.of_task(args, prompt, project, path)
    if proposed:
        new = replace(new, lines=(new.lines[0], knob_trials.summary(proposed)))
    return replace(new, facts=new_facts.with_check(msgspec.structs.replace(
        new.facts, task=task_file, files=tuple(sorted(result.drafted.files)),
        reference=result.drafted.target.reference, calls=group.count,
        proposed_knobs=new_facts.tried_knobs(proposed),
        inferred=tuple(f"{name}: {value} ({why})" for name, value, why in drafted.reasons),
        seconds=round(result.seconds, 1)), result))


def _kernel(args: argparse.Namespace, prompt: Prompt, project: Path) -> WatchedKernel:
    text = sources.read_source(project / args.source)
    if args.entry is None:
        names = entry_source.public_functions(text) or entry_source.module_methods(text)
        if not names:
            entry_source.parsed(text, args.source)  # raises for a source that is not Python
            raise InputError("there is no function to write a task for", where=args.source,
                             fix=f"name a method: kopt new {args.source}:CLASS.METHOD")
        args.entry = prompt.choice(f"the function of {args.source}",
                                   f"{args.source}:FUNCTION", names)
    entry = entry_source.find(text, args.entry, args.source)
    device = inventory.find(args.device or "auto")
    return WatchedKernel(project=project, source=args.source, text=text, entry=entry,
                         device=device, python=_python(args.command),
                         is_triton=sources.uses_triton(project, text))


def _python(command: Sequence[str]) -> str | None:
    """Return the path of the program's Python; None if that is kopt's own or there is none."""
    _, program = shell_command.split_words(command)
    path = shutil.which(program[0]) if program else None
    if not path or not Path(path).name.startswith("python"):
        return None
    is_own = os.path.abspath(path) == os.path.abspath(sys.executable) or \
        Path(path).parent == Path(sys.executable).parent
    return None if is_own else os.path.abspath(path)


def _observe(kernel: WatchedKernel, args: argparse.Namespace) -> WatchedProgram:
    """Run the program, or one of our own that calls the function. Raises KoptError."""
    function = WatchedFunction(file=os.path.realpath(kernel.project / kernel.source),
                               name=kernel.entry.name, lines=kernel.entry.lines,
                               owner=kernel.entry.owner, parts=kernel.entry.parts)
    command = list(args.command)
    with tempfile.TemporaryDirectory(prefix="kopt-") as folder, _lock_device(kernel.device) as held:
        if not command:
            command = _program(kernel, args, Path(folder))
        observed = watched_calls.watch(command, function, Path.cwd(), lock=held,
                                       interpret=kernel.interpret, env=kernel.device.visible_env,
                                       on_cpu=kernel.device.kind == "cpu")
    if not observed.calls:
        raise first_check.fault(observed, kernel.title, on_gpu=kernel.device.kind != "cpu")
    return observed


def _program(kernel: WatchedKernel, args: argparse.Namespace, folder: Path) -> list[str]:
    """Return a command that calls the function: with the shapes of --shape, or, for a submission
    to a GPU MODE competition, as its evaluation does.
    """
    path = folder / "call.py"
    if not args.shape:
        text = submission_program.write(kernel.project, kernel.source, kernel.entry.entry,
                                        small=kernel.device.kind == "cpu")
        if not text:
            raise InputError("no program is given", where=kernel.title, fix=(
                "add one that calls the function, such as: -- "
                f"{shape_program.example(kernel.entry, kernel.project)}; or give --shape NAME=DIMS "
                "for each tensor"))
        path = kernel.project / submission_program.FILE
        path.parent.mkdir(exist_ok=True)
    else:
        dtypes = {name if equals else "": value if equals else name for name, equals, value in (
            text.partition("=") for text in args.dtype)}
        text = shape_program.write(
            kernel.entry, str((kernel.project / kernel.source).resolve()),
            pairs(args.shape, "--shape"), pairs(args.scalar, "--scalar"), dtypes,
            [parse_config_class(text).shape for text in args.classes], kernel.title,
            backward=args.backward)
    path.write_text(text, encoding="utf-8")
    return [sys.executable, str(path)]


def _lock_device(device: Device) -> AbstractContextManager[DeviceLock | None]:
    return nullcontext() if device.kind == "cpu" else device_lock.acquire(*device.lock_names)


def _chosen(groups: Sequence[CallGroup], number: int | None, kernel: WatchedKernel) -> CallGroup:
    if number is None:
        return draft_task.choose(groups, interpret=kernel.interpret)
    if not 1 <= number <= len(groups):
        raise InputError(f"there is no kind of call number {number}",
                         where="--calls", fix=f"choose 1 to {len(groups)}")
    return groups[number - 1]


def _settled(kernel: WatchedKernel, args: argparse.Namespace, prompt: Prompt,
             observed: WatchedProgram, group: CallGroup, draft: TaskDraft) -> FirstCheck:
    """Return the task after its first check; its reference is given, found, or the baseline."""
    make = partial(drafted_target.make, draft, kernel.entry, kernel.source, kernel.language)
    fallback, why = make(), ""
    assert fallback is not None  # the baseline computes everything
    if args.reference:
        drafted = make(given=args.reference) or fallback
    else:
        found, why = _reference(kernel, observed, group, prompt)
        made = None if found is None else make(found=found)
        if found is None and not args.command:
            why = "no program compares the result (--reference FILE:FUNCTION names another)"
        if found is not None and made is None:
            why = f"{found.where} does not compute every output"
        drafted = made or fallback
    changes = (f"reference: baseline, because {why}",) if why else ()
    if not args.first_check:
        return FirstCheck(drafted=drafted, changes=changes)
    with stages(quiet=args.json) as progress:
        result = first_check.settle(drafted, fallback, kernel.project, kernel.device,
                                    python=kernel.python, progress=progress)
    return replace(result, changes=(*changes, *result.changes))


def _reference(kernel: WatchedKernel, observed: WatchedProgram, group: CallGroup,
               prompt: Prompt) -> tuple[FoundReference | None, str]:
    """Return what the program compares the result with, or why that gives no reference."""
    names = list(group.calls[0].args)
    callers = [caller for caller in observed.callers if all(
        name in caller.call.args and caller.call.args[name].dtype == value.dtype
        for name, value in group.calls[0].args.items())]
    found, why = reference_source.find(callers, kernel.entry, names, kernel.project)
    if found is None or not prompt.interactive:
        return found, why
    answer = prompt.line(f"is {clean(found.where)} the correct result? [Y/n] ")
    return (found, why) if answer.casefold() in ("", "y", "yes") else \
        (None, "you declined the one found")


def _lines(kernel: WatchedKernel, observed: WatchedProgram, groups: Sequence[CallGroup],
           group: CallGroup, draft: TaskDraft, result: FirstCheck) -> Iterator[str]:
    """Yield what was inferred, with reasons, and the first verdict."""
    target = result.drafted.target
    yield f"{kernel.title}: {group.describe()}"
    for name, value, why in draft.reasons:
        yield f"  {name:10} {value}  ({why})"
    yield f"  {'reference':10} {target.reference}" + (
        "" if target.by_baseline else "  (what the program compares the result with)"
        if drafted_target.REFERENCE in result.drafted.files else "  (given)")
    if target.adapter:
        yield f"  {'adapter':10} {target.adapter}  (passes and returns what the task declares)"
    for text in (*draft.remarks, *result.changes):
        yield f"- {text}"
    if place := first_check.on_import(observed, kernel.project, kernel.source):
        yield f"- {place} runs whenever the file is imported, in every verdict: move it below " \
            'if __name__ == "__main__":'
    if failure := first_check.failure_of(observed):
        yield f"- the program failed after these calls: {failure}"
    others = [other for other in groups if other is not group]
    for other in others[:MOST_GROUPS]:
        yield f"- not in the task: {other.describe()} (--calls {groups.index(other) + 1})"
    if verdict := result.describe(
            f"{counted(len(target.classes), 'config class')} ({result.seconds:.0f} s)",
            f"{result.failing} {result.problem}; edit the task, then kopt evaluate"):
        yield verdict
