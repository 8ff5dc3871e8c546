"""`kopt new FILE` for a PyTorch module: writes the task, its reference and its adapter.

The file has `Model`, `get_inputs` and `get_init_inputs`, as the problems of KernelBench do.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import msgspec

from engine.discovery.module import draft_module
from engine.discovery.module.draft_module import FOLDER, Size
from engine.discovery.new.draft_kernel import DraftedTarget
from engine.rewrites import module_rewrite
from harness.devices import inventory
from harness.errors import InputError, Refused
from harness.formats import yaml_values
from harness.isolation.zygote_client import Zygote
from harness.requests import Progress
from harness.tasks.target import Target
from kopt_tui.cli.new import new_kernel
from kopt_tui.cli.new.parameter_list import NewManifest
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.stage_line import stages
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean

MODES = {"train": True, "eval": False}
UNTIMED = "no knobs: without a GPU kopt run checks its rewrites of the module for " \
    "correctness, but cannot time them, so it keeps none"


def add_module_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a PyTorch module (Model, get_inputs, get_init_inputs)")
    group.add_argument("--size", metavar="NAME=N", action="append", default=[],
                       help="a new value for an integer that the file assigns to NAME, such "
                       "as batch_size=16; shapes and weights follow")
    group.add_argument("--sizes", choices=("full", "small"), default=None,
                       help="full: the file's own sizes; small: such that a call on a CPU takes "
                       "milliseconds (default: small if there is no GPU here)")
    group.add_argument("--mode", choices=tuple(MODES), default=None,
                       help="the module's mode (default: train, as in KernelBench, unless that "
                       "draws random numbers)")


def make(args: argparse.Namespace, prompt: Prompt, project: Path, path: Path,
         folder: str = FOLDER, *, zygote: Zygote | None = None) -> NewManifest:
    """Return the manifest; writes the task's files to a folder of the project. Raises KoptError."""
    task = project / folder / "task.yaml"
    if task.exists() and not args.force:
        raise Refused("the task already exists", where=str(task), fix="--force overwrites it")
    to = sys.stderr if args.json or prompt.interactive else sys.stdout
    on_cpu = inventory.find(args.device or "auto").kind == "cpu"
    small = args.sizes == "small" or (args.sizes is None and on_cpu)
    with tempfile.TemporaryDirectory(prefix="kopt-") as scratch, \
            stages(quiet=args.json) as progress:
        progress(Progress(stage="running", detail=f"{args.source} to learn its inputs and results"))
        draft = draft_module.draft(
            project, args.source, folder, Path(scratch), sizes=dict(map(_size, args.size)),
            small=small, training=MODES.get(args.mode or ""), zygote=zygote)
        draft.write(project)
        progress(Progress(stage="matching", detail=f"{args.source} with kopt's templates"))
        outlook = _outlook(args, draft.target, project, Path(scratch), zygote, on_cpu=on_cpu) \
            if args.first_check else UNTIMED if on_cpu else new_kernel.OF_MODULE
    _show(draft, args, to, small=small)
    args.task = f"{folder}/task.yaml"
    new = new_kernel.of_task(args, prompt, project, path)
    lines = tuple(outlook if line == new_kernel.OF_MODULE else line for line in new.lines)
    return replace(new, lines=lines, facts=msgspec.structs.replace(
        new.facts, task=args.task, files=tuple(sorted(draft.files)), inferred=draft.reasons))


def _outlook(args: argparse.Namespace, target: Target, project: Path, scratch: Path,
             zygote: Zygote | None, *, on_cpu: bool) -> str:
    """Return how kopt's templates rewrite a module, or which is closest and why it does not fit."""
    rewrites = module_rewrite.find(target, project, project, scratch, zygote=zygote)
    if rewrites.rewrites and on_cpu:
        return f"{UNTIMED} ({rewrites.rewrites[0].hypothesis})" \
            + ("" if args.agent else f"; {new_kernel.BY_AGENT.removeprefix('or ')}")
    if rewrites.rewrites:
        return f"no knobs: kopt run rewrites the module: {rewrites.rewrites[0].hypothesis}"
    return f"no knobs, no rewrite: {rewrites.nothing}" \
        + ("" if args.agent else f"; {new_kernel.BY_AGENT.removeprefix('or ')}")


def _show(draft: DraftedTarget, args: argparse.Namespace, to: TextIO, *, small: bool) -> None:
    if small and args.sizes is None:
        print_text("no GPU here: sizes are reduced for the CPU where smaller ones work "
                   "(--sizes full keeps all)", to)
    print_text(f"{args.source}: Model, a PyTorch module", to)
    for line in draft.reasons:
        print_text(f"  {clean(line)}", to, 4)
    print_text(f"  reference: the baseline's Model{' in float64' if draft.target.float64 else ''}; "
               "candidates: ModelNew, or a changed Model, with weights of the same names", to, 4)


def _size(text: str) -> tuple[str, Size]:
    name, _, value = text.partition("=")
    number = yaml_values.scalar(value)
    if not name.isidentifier() or type(number) is not int or number < 1:
        raise InputError(f"cannot read --size {text}", fix="write --size NAME=16")
    return name, number
