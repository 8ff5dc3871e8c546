"""`kopt new`: write a manifest for a kernel or a benchmark, asking for what it cannot infer.

WHAT is a FILE, FILE:FUNCTION, FILE:Class.method or a FOLDER. A program after `--` is run once to
see how it calls the function.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.coding_agents import agent_templates
from engine.discovery.new.parameters import ROUNDS
from engine.discovery.project.sources import read_source, task_files
from engine.manifest import command_checks
from engine.manifest.benchmark_target import command_target
from engine.manifest.pool_schema import PoolSpec
from engine.manifest.rules import BACKENDS
from engine.manifest.schema import Manifest
from engine.planning import kernel_routing, pool_size
from harness.devices import inventory
from harness.errors import KoptError, Refused
from harness.tasks import task_file
from kopt_tui.cli.new import (
    new_batch,
    new_benchmark,
    new_definition,
    new_function,
    new_kernel,
    new_module,
    new_target,
    parameter_list,
    written_files,
)
from kopt_tui.cli.new.new_facts import NewFacts
from kopt_tui.cli.new.new_target import Kind
from kopt_tui.cli.new.parameter_list import ChosenValue, NewManifest
from kopt_tui.cli.output import print_json
from kopt_tui.cli.parser import add_json
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean

FOR_A_KERNEL = "a task for one C function; for a benchmark of the project: " \
    "kopt new --benchmark COMMAND"
MAKERS: dict[Kind, Callable[[argparse.Namespace, Prompt, Path, Path], NewManifest]] = {
    "benchmark": new_benchmark.make, "kernel": new_kernel.make, "gpu_source": new_kernel.make,
    "function": new_function.make, "module": new_module.make, "definition": new_definition.make}
"""By kind, the function that makes its manifest from flags, prompt, project and path."""


class WrittenManifest(NewFacts, frozen=True, kw_only=True):
    """A manifest that was written: its file, its parameters, and what it is about."""

    manifest: str
    parameters: dict[str, ChosenValue]
    routing: str
    """Into which languages agents will rewrite the kernel, "" without agents."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "kopt new [WHAT] [--flags] [-- PROGRAM ARG...]"
    parser.epilog = ("PROGRAM is a test or script of yours that calls the function: it is run "
                     "once, and its arguments become the task.")
    parser.add_argument("what", metavar="WHAT", nargs="?", default=None,
                        help="FILE, FILE:FUNCTION, FILE:Class.method or FOLDER; a .yaml file is "
                        "the manifest to write")
    parser.add_argument("--manifest", metavar="FILE", type=Path, default=None,
                        help="where to write it (default: manifest.yaml in the project)")
    parser.add_argument("--project", metavar="DIR", type=Path, default=None,
                        help="the kernel's git repository (default: the one that contains the file "
                        "WHAT; the folder WHAT; else the manifest's folder)")
    parser.add_argument("--each", action="store_true",
                        help="WHAT is a folder: write one manifest per file in it")
    parser.add_argument("--task", metavar="FILE", default=None,
                        help="the task file, inside the project (default: the one found there)")
    parser.add_argument("--device", metavar="DEVICE", default=None, help="auto, cpu, cuda:0, UUID")
    parser.add_argument("--approval", choices=("auto", "review", "flagged"), default=None,
                        help="who approves a gain: review (always you), flagged (you if the audit "
                        "flags it, it is above 2x, it changes other files or a class loses), auto "
                        "(you only if a class loses, or if kernel time, a held-out shape or the "
                        "benchmark's check is in doubt)")
    parser.add_argument("--rounds", metavar="N", type=int, default=None,
                        help=f"the most rounds (default {ROUNDS})")
    parser.add_argument("--backends", metavar="A,B", default=None,
                        help=f"the workers, of {', '.join(BACKENDS)} (default: "
                        f"{','.join(PoolSpec().backends)})")
    parser.add_argument("--agent", metavar="NAME|COMMAND", default=None,
                        help=f"a coding agent as a worker: {', '.join(agent_templates.names())}, "
                        "or a command such as 'my-agent --prompt-file {prompt}'; {worktree} is "
                        "the folder that it edits; a line `Hypothesis: TEXT` that it prints names "
                        "its change")
    parser.add_argument("--agent-env", metavar="A,B", default=None,
                        help="environment variables that it may see, such as its key")
    parser.add_argument("--agent-network", metavar="HOST,...", default=None,
                        help="the hosts that it may reach, `all` for the whole network (default: "
                        "the providers of its keys and URLs)")
    parser.add_argument("--yes", "-y", action="store_true", help="take every default, ask nothing")
    parser.add_argument("--force", action="store_true",
                        help="overwrite an existing manifest and task")
    parser.add_argument("--no-check", dest="first_check", action="store_false", default=True,
                        help="skip the verdict on the unmodified kernel")
    add_json(parser, WrittenManifest, new_batch.WrittenManifests)
    new_kernel.add_task_flags(parser)
    new_module.add_module_flags(parser)
    new_definition.add_definition_flags(parser)
    new_benchmark.add_command_flags(parser)
    new_function.add_watch_flags(parser)


def run(args: argparse.Namespace) -> int:
    prompt = Prompt(quiet=args.yes)
    project, path = new_target.place(args)
    kind = new_target.choose(project, args)
    if kind == "batch":
        return new_batch.run(args, project)
    if path.exists() and not args.force:
        raise Refused("the manifest already exists", where=str(path), fix="--force overwrites it, "
                      "--manifest FILE writes another")
    if kind == "kernel" and prompt.interactive and args.source is None \
            and not (args.task or task_files(project)):
        print_text(FOR_A_KERNEL, sys.stderr)
    with written_files.all_or_nothing(project, args.task or "task.yaml"):
        new = MAKERS[kind](args, prompt, project, path)
        written_files.write_manifest(new.manifest, path)
    routing = _routing(new.manifest, project)
    if args.json:
        print_json(WrittenManifest(
            **msgspec.structs.asdict(new.facts), manifest=str(path), routing=routing,
            parameters=parameter_list.as_json(new.parameters)))
        return 0
    first, *others = map(clean, [*new.lines, *([routing] if routing else []),
                                 *command_checks.agent_problems(new.manifest)])
    for line in (f"wrote {_brief(path)}: {first}", *others):
        print_text(line)
    _print_next(_brief(path), new.facts)
    return 0


def _print_next(path: str, facts: NewFacts) -> None:
    """Print the commands to run next."""
    if facts.problem and (facts.reference_fails or facts.first_verdict is not None):
        what = "the reference" if facts.reference_fails else "it"
        print_text(f"next: correct {what}, then kopt evaluate {path}")
        return
    print(f"next: kopt evaluate {path}   (one verdict)")
    if facts.knobs or facts.proposed_knobs:
        print(f"      kopt loop {path}   (search its knobs)")
    print(f"      kopt run {path}   (a campaign)")


def _brief(path: Path) -> str:
    """Return a path as a person writes it in the current folder."""
    here, path = Path.cwd().resolve(), path.resolve()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def _routing(manifest: Manifest, project: Path) -> str:
    """Return in words what the manifest's agents rewrite the kernel into, "" without agents."""
    if not pool_size.authors(manifest.pool):
        return ""
    target = command_target(manifest) if manifest.target.kind == "command" else \
        task_file.load(project / manifest.target.task)
    try:
        device = inventory.find(manifest.gpu.device.partition(",")[0])
    except KoptError:  # the device is another machine's
        return ""
    resolved = msgspec.structs.replace(manifest, project=str(project))
    return str(kernel_routing.of_source(
        resolved, target, read_source(project / target.source) if target.source else "",
        device.kind, manifest.edit or (target.source,)))
