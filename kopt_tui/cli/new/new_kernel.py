"""`kopt new` for a kernel with a task file: shows the parameters and lets a person change them."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from engine.discovery.new import draft_kernel
from engine.discovery.new.parameters import Parameters
from engine.discovery.project.sources import task_files
from engine.manifest.schema import Manifest
from harness import target
from harness.errors import InputError
from harness.formats.quantities import counted
from harness.search.space import knobs
from kopt_tui.cli.new import parameter_list
from kopt_tui.cli.new.parameter_list import NewManifest
from kopt_tui.cli.new.task_prompts import draft_task
from kopt_tui.cli.prompt import Prompt


def make(args: argparse.Namespace, prompt: Prompt, project: Path, path: Path) -> NewManifest:
    """Return the manifest, at a terminal after the person has confirmed its parameters.

    Raises InputError for an unknown parameter or a wrong value.
    """
    task_file = _task_file(project, args, prompt)
    task = target.load(project / task_file)
    if not (project / task.source).is_file():
        raise InputError(f"its source {task.source!r} does not exist", where=str(task_file))
    flags = parameter_list.from_flags(args)
    backends = [name.strip() for name in (args.backends or "").split(",") if name.strip()]
    project_path = os.path.relpath(project, path.resolve().parent)

    def build(known: Parameters) -> Manifest:
        return draft_kernel.make_manifest(known, task, task_file, project_path, backends)

    def change(trial: Mapping[str, str]) -> Parameters:
        known = draft_kernel.infer_parameters(task, trial)
        build(known)  # raises for a wrong value
        return known

    known = change(flags)
    parameter_list.show(known, sys.stderr if args.json or prompt.interactive else sys.stdout)
    known = parameter_list.confirm(known, flags, prompt, change)
    source = (project / task.source).read_text(errors="replace")
    declared = knobs.find(source, language=task.language, where=task.source)
    listed = ", ".join(f"{knob.name} ({len(knob.choices)})" for knob in declared[:8])
    settings = counted(math.prod(len(knob.choices) for knob in declared), "configuration")
    return NewManifest(
        manifest=build(known), parameters=known,
        lines=(f"{task.op} in {task.language}, {task.source}, "
               f"{counted(len(task.classes), 'config class')}",
               f"knobs: {listed}; {settings}" if declared else
               "no knobs: declare some with a comment such as  // kopt: knob TILE in [16, 32]"),
        facts={"op": task.op, "language": task.language, "source": task.source, "knobs": declared,
               "classes": [entry.name for entry in task.classes]})


def _task_file(project: Path, args: argparse.Namespace, prompt: Prompt) -> str:
    """Return the task file's path in the project, drafting one where there is none."""
    if args.task is not None and (project / args.task).exists():
        return str(args.task)
    if args.task is None and (files := task_files(project)):
        names = [file.relative_to(project).as_posix() for file in files]
        return prompt.choice("the task file", "--task", names)
    name = args.task or "task.yaml"
    draft_task(project, project / name, args, prompt)
    return str(name)
