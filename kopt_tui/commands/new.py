"""`kopt new`: write a manifest for a kernel or a benchmark, asking for what it cannot infer."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

from engine.discovery.new.draft_kernel import ROUNDS
from engine.discovery.new.parameters import Parameters
from engine.manifest.load import dump
from harness import target
from harness.errors import InputError, KoptError, Refused
from harness.formats.quantities import counted
from harness.search.space import knobs
from harness.target import Target
from kopt_tui.cli.new import new_benchmark, new_kernel, parameter_list
from kopt_tui.cli.new.task_prompts import add_task_flags, draft_task
from kopt_tui.cli.output import print_json
from kopt_tui.cli.parser import add_json
from kopt_tui.cli.prompt import Prompt
from kopt_tui.snapshot.phrases import clean


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST", nargs="?", type=Path, default=None,
                        help="where to write it (default: manifest.yaml in the project)")
    parser.add_argument("--project", metavar="DIR", type=Path, default=None,
                        help="the kernel's git repository (default: the manifest's folder)")
    parser.add_argument("--task", metavar="FILE", default=None,
                        help="the task file, inside the project (default: the one found there)")
    parser.add_argument("--device", metavar="DEVICE", default=None, help="auto, cpu, cuda:0, UUID")
    parser.add_argument("--approval", choices=("auto", "review", "flagged"), default=None,
                        help="who approves a gain: auto (kopt), review (you), flagged (you, if the "
                        "audit flags it)")
    parser.add_argument("--rounds", metavar="N", type=int, default=None,
                        help=f"the most rounds (default {ROUNDS})")
    parser.add_argument("--backends", metavar="A,B", default=None,
                        help="the backends of the workers")
    parser.add_argument("--yes", "-y", action="store_true", help="take every default, ask nothing")
    parser.add_argument("--force", action="store_true", help="overwrite an existing manifest")
    add_json(parser)
    add_task_flags(parser)
    new_benchmark.add_command_flags(parser)


def run(args: argparse.Namespace) -> int:
    prompt = Prompt(quiet=args.yes)
    project = (args.project or (args.manifest.parent if args.manifest else Path("."))).resolve()
    if not project.is_dir():
        raise InputError("the project folder does not exist", where=str(project),
                         fix="use --project")
    path = args.manifest or project / "manifest.yaml"
    if path.exists() and not args.force:
        raise Refused("the manifest already exists", where=str(path), fix="--force overwrites it")
    if new_benchmark.is_for_benchmark(project, args):
        new = new_benchmark.make(args, prompt, project, path)
        _write(path, dump(new.manifest, brief=True))
        new_benchmark.print_result(args, path, new, _obstacle(project))
        return 0
    task_file = _task_file(project, args, prompt)
    task = target.load(project / task_file)
    if not (project / task.source).is_file():
        raise InputError(f"its source {task.source!r} does not exist", where=str(task_file))
    manifest, parameters = new_kernel.make(args, prompt, project, path, task_file, task)
    _write(path, dump(manifest, brief=True))
    _print_result(args, path, project, task, parameters)
    return 0


def _task_file(project: Path, args: argparse.Namespace, prompt: Prompt) -> str:
    """Return the task file's path in the project, drafting one where there is none."""
    from engine.discovery.project.sources import task_files

    if args.task is not None and (project / args.task).exists():
        return str(args.task)
    if args.task is None and (files := task_files(project)):
        names = [file.relative_to(project).as_posix() for file in files]
        return prompt.choice("the task file", "--task", names)
    name = args.task or "task.yaml"
    draft_task(project, project / name, args, prompt)
    return str(name)


def _write(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _print_result(args: argparse.Namespace, path: Path, project: Path, task: Target,
                  parameters: Parameters) -> None:
    """Print what was inferred, what still prevents a run, and what to do next."""
    source = (project / task.source).read_text(errors="replace")
    declared = knobs.find(source, language=task.language, where=task.source)
    warning = _obstacle(project)
    if args.json:
        print_json({"manifest": str(path), "op": task.op, "language": task.language,
                    "source": task.source, "classes": [entry.name for entry in task.classes],
                    "knobs": declared, "warning": warning,
                    "parameters": parameter_list.as_json(parameters)})
        return
    settings = math.prod(len(knob.choices) for knob in declared)
    listed = ", ".join(f"{knob.name} ({len(knob.choices)})" for knob in declared[:8])
    print(f"wrote {path}: {clean(task.op)} in {task.language}, {clean(task.source)}, "
          f"{counted(len(task.classes), 'config class')}")
    print(f"knobs: {clean(listed)}; {counted(settings, 'configuration')}" if declared else
          "no knobs: declare some with a comment such as  // kopt: knob TILE in [16, 32]")
    if warning:
        print(f"kopt: {warning}", file=sys.stderr)
    print(f"next: kopt run {path}")


def _obstacle(project: Path) -> str:
    """Return what would prevent `kopt run`, such as a project without a commit."""
    from engine.repository.project import find

    try:
        return find(project).warning
    except KoptError as error:
        return str(error)
