"""`kopt demo`: run a short campaign on an example, from start to end.

The example is copied into the workspace as a git repository of its own: a Triton kernel on a
machine with a GPU, else a naive C kernel. With `--agent` the backend `agent` works in the slots; a
script of the example answers in place of a model.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import closing
from pathlib import Path

import msgspec

from engine.history import waiting_line
from engine.journal import database
from engine.journal.read import Reader
from engine.manifest import load
from harness.errors import EnvironmentFault, InputError
from kopt_tui.cli.campaign_choice import is_live
from kopt_tui.cli.event_stream import EventPrinter, print_summary
from kopt_tui.cli.parser import workspace_of
from kopt_tui.commands import control
from kopt_tui.commands.run import start

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ON_CPU, ON_GPU, WITH_AGENT = "matmul_c", "softmax_triton", "rmsnorm_c"
MANIFEST, AGENT_MANIFEST = "manifest.yaml", "agent.yaml"
APPROVAL_S = 120.0
"""How long the demo waits for the engine's answer to its approval."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--example", metavar="NAME", default=None,
                        help="an example's name (default: one that fits this machine)")
    parser.add_argument("--agent", action="store_true",
                        help="let the backend `agent` work in the slots; a script takes the "
                        "model's place, so that no model and no key are needed")
    parser.add_argument("--plain", action="store_true",
                        help="print events as lines instead of opening the dashboard")


def run(args: argparse.Namespace) -> int:
    from engine.campaign import setup as campaigns  # here and below: start-up time
    from engine.workers import agent

    workspace = workspace_of(args)
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not args.plain
    if args.agent and (lacking := agent.missing_extra()):
        raise EnvironmentFault(
            lacking, fix="in a clone of kopt, `make demo-agent` installs it and runs this demo")
    example = args.example or (WITH_AGENT if args.agent else _default_example())
    manifest = _copy(example, workspace, AGENT_MANIFEST if args.agent else MANIFEST)
    if not at_terminal and not args.agent:  # nobody can approve a candidate
        manifest = _with_automatic_approval(manifest, workspace)
    setup = campaigns.create(workspace, manifest)
    if not at_terminal:
        print(f"campaign {setup.id}: {setup.target.description or setup.target.op} on "
              f"{setup.device.name}", flush=True)
        code = start(workspace, setup.id, wait=True)
        return _approve_all(workspace, setup.id) if args.agent and not code else code
    from kopt_tui.dashboard import launch

    start(workspace, setup.id)
    return launch.main(workspace, campaign=setup.id) or _end(workspace, setup.id)


def _end(workspace: Path, campaign: str) -> int:
    """Print the demo's result, or that it continues; return 1 if it ended without success."""
    with closing(Reader(workspace)) as reader:
        if not is_live(reader, campaign):
            return print_summary(reader, campaign)
    print(f"{campaign} continues; kopt attach {campaign} shows it, kopt stop {campaign} ends it")
    return 0


def _approve_all(workspace: Path, campaign: str) -> int:
    """Approve what waits for a person, where nobody is at a terminal, and print the result."""
    code = 0
    with closing(Reader(workspace)) as reader:
        events = EventPrinter(reader, campaign)
        while not code and (line := waiting_line.read(reader, campaign)):
            print(f"\nno terminal is attached, so the demo runs kopt approve {line[0].id[:12]}")
            events.last_seq = reader.last_events(campaign, 1)[-1].seq
            code = control.run(argparse.Namespace(
                verb="approve", candidate=line[0].id, campaign=campaign, wait=APPROVAL_S,
                json=False, workspace=workspace))
            events.follow(lambda: is_live(reader, campaign))
        return print_summary(reader, campaign) or code


def _default_example() -> str:
    from harness.devices import inventory

    cards = [device for device in inventory.inventory() if device.kind == "nvidia"
             and not device.unusable]
    return ON_GPU if cards else ON_CPU


def _copy(example: str, workspace: Path, manifest: str) -> Path:
    """Copy an example into the workspace, make it a git repository; return its manifest."""
    from engine.repository.git import GitFailed
    from engine.repository.project import start_repository

    source = EXAMPLES / example
    if not (source / manifest).is_file():
        names = ", ".join(sorted(p.parent.name for p in EXAMPLES.glob(f"*/{manifest}")))
        raise InputError(f"no example {example!r} with a {manifest}", fix=f"one of {names}")
    projects = workspace / "projects"
    database.make_workspace(workspace)
    try:
        projects.mkdir(parents=True, exist_ok=True)
        number = 1
        while (path := projects / (example if number == 1 else f"{example}-{number}")).exists():
            number += 1
        shutil.copytree(source, path, ignore=shutil.ignore_patterns("__pycache__"))
        start_repository(path, f"{example}: the naive kernel")
    except OSError as error:
        raise EnvironmentFault(f"cannot copy the example: {error.strerror}",
                               where=str(workspace), fix="choose another --workspace") from None
    except GitFailed as error:
        raise EnvironmentFault(f"git: {error.what}", where=str(workspace)) from None
    return path / manifest


def _with_automatic_approval(manifest: Path, workspace: Path) -> Path:
    """Return a copy of the manifest that keeps gains without asking."""
    loaded = msgspec.structs.replace(load.load(manifest), approval="auto")
    path = workspace / "projects" / f"{manifest.parent.name}.yaml"
    path.write_text(load.dump(loaded, brief=True))
    return path
