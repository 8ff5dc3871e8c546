"""`kopt run`: start or continue a campaign in a background process."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.errors import Refused
from kopt_tui.cli.event_stream import follow
from kopt_tui.cli.parser import workspace_of


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST",
                        help="a manifest file, or the name of a campaign to continue")
    parser.add_argument("--here", action="store_true",
                        help="run in this process, with the dashboard if this is a terminal")
    parser.add_argument("--wait", action="store_true",
                        help="print the campaign's events until it ends")


def run(args: argparse.Namespace) -> int:
    from engine.run import host  # here and below: start-up time

    workspace = workspace_of(args)
    campaign = _campaign(workspace, args.manifest)
    if args.here:
        return here(workspace, campaign)
    if (pid := host.owner(workspace, campaign)) is not None:
        raise Refused(f"{campaign} runs already, in process {pid}", fix="kopt attach shows it")
    pid = host.spawn(workspace, campaign)
    print(f"{campaign} runs in process {pid}; kopt attach {campaign} shows it", flush=True)
    return follow(workspace, campaign) if args.wait else 0


def here(workspace: Path, campaign: str, *, dashboard: bool | None = None) -> int:
    """Run the engine in this process, with the dashboard at a terminal, else printing events."""
    from engine.run.engine import Engine

    engine = Engine(workspace, campaign)
    at_terminal = sys.stdin.isatty() and sys.stdout.isatty() if dashboard is None else dashboard
    engine.start()
    try:
        if at_terminal:
            from kopt_tui.dashboard import launch

            return launch.main(workspace, campaign=campaign, engine=engine)
        code = follow(workspace, campaign, engine=engine)
        if engine.error is not None:
            raise engine.error
        return code
    finally:
        engine.stop()
        engine.join()


def _campaign(workspace: Path, name: str) -> str:
    """Return the campaign to run: a new one from a manifest file, or an existing one."""
    from engine.campaign import setup as campaigns

    if not Path(name).exists() and "/" not in name and not name.endswith((".yaml", ".yml")):
        return campaigns.open_campaign(workspace, name).id
    workspace.mkdir(parents=True, exist_ok=True)
    return campaigns.create(workspace, Path(name)).id
