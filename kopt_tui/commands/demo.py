"""`kopt demo`: run a short campaign on an example, from start to end.

The example is copied into the workspace as a git repository of its own: a Triton kernel on a
machine with a GPU, else a naive C kernel.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import closing
from pathlib import Path

from engine.journal import database
from engine.manifest import load
from harness.errors import EnvironmentFault, InputError
from kopt_tui.cli.campaign_choice import is_live
from kopt_tui.cli.event_stream import print_summary
from kopt_tui.cli.parser import workspace_of
from kopt_tui.commands.run import start

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ON_CPU, ON_GPU = "matmul_c", "softmax_triton"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--example", metavar="NAME", default=None,
                        help="an example's name (default: one that fits this machine)")
    parser.add_argument("--plain", action="store_true",
                        help="print events as lines instead of opening the dashboard")


def run(args: argparse.Namespace) -> int:
    from engine.campaign import setup as campaigns  # here and below: start-up time

    workspace = workspace_of(args)
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not args.plain
    example = args.example or _default_example()
    project = _copy(example, workspace)
    manifest = project / "manifest.yaml"
    if not at_terminal:  # nobody can approve a candidate
        manifest = _with_automatic_approval(manifest, workspace)
    setup = campaigns.create(workspace, manifest)
    if not at_terminal:
        print(f"campaign {setup.id}: {setup.target.description or setup.target.op} on "
              f"{setup.device.name}", flush=True)
        return start(workspace, setup.id, wait=True)
    from kopt_tui.dashboard import launch

    start(workspace, setup.id)
    return launch.main(workspace, campaign=setup.id) or _end(workspace, setup.id)


def _end(workspace: Path, campaign: str) -> int:
    """Print the demo's result, or that it goes on; return 0 unless it failed."""
    from engine.journal.read import Reader

    with closing(Reader(workspace)) as reader:
        if not is_live(reader, campaign):
            return print_summary(reader, campaign)
    print(f"{campaign} goes on; kopt attach {campaign} shows it, kopt stop {campaign} ends it")
    return 0


def _default_example() -> str:
    from harness.devices import inventory

    cards = [device for device in inventory.inventory() if device.kind == "nvidia"
             and not device.unusable]
    return ON_GPU if cards else ON_CPU


def _copy(example: str, workspace: Path) -> Path:
    """Copy an example into the workspace and make it a git repository with one commit."""
    from engine.repository.git import GitFailed
    from engine.repository.project import start_repository

    source = EXAMPLES / example
    if not (source / "manifest.yaml").is_file():
        names = ", ".join(sorted(p.parent.name for p in EXAMPLES.glob("*/manifest.yaml")))
        raise InputError(f"no example {example!r}", fix=f"one of {names}")
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
    return path


def _with_automatic_approval(manifest: Path, workspace: Path) -> Path:
    """Return a copy of the manifest that keeps gains without asking."""
    import msgspec

    loaded = msgspec.structs.replace(load.load(manifest), approval="auto")
    path = workspace / "projects" / f"{manifest.parent.name}.yaml"
    path.write_text(load.dump(loaded, brief=True))
    return path
