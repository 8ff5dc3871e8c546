"""`kopt run`: start or continue a campaign in a background process."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path

import msgspec

from engine.journal.read import Reader
from engine.journal.records import Campaign
from harness.errors import InputError, Refused
from kopt_tui.cli.campaign_choice import choose_campaign, is_live
from kopt_tui.cli.event_stream import POLL_S, SUCCESSFUL, follow
from kopt_tui.cli.output import print_json, print_note
from kopt_tui.cli.parser import MANIFEST, add_json, workspace_of
from kopt_tui.cli.prompt import Prompt
from kopt_tui.snapshot import phrases


class StartedCampaign(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign in the process `pid`; with --wait as it is at its end."""

    campaign: Campaign
    pid: int
    warnings: tuple[str, ...]


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST", nargs="?", default=str(MANIFEST),
                        help="a manifest file, or the name of a campaign to continue; with "
                        f"--each a folder (default: ./{MANIFEST})")
    parser.add_argument("--each", action="store_true",
                        help="run the manifests that kopt new FOLDER --each wrote, one after the "
                        "other; call it again to go on where it was interrupted")
    parser.add_argument("--here", action="store_true",
                        help="run in this process, with the dashboard if this is a terminal")
    parser.add_argument("--wait", action="store_true",
                        help="print the campaign's events until it ends")
    parser.add_argument("--new", action="store_true",
                        help="start another campaign also if one of this manifest runs; with "
                        "--each also if one has ended")
    add_json(parser, StartedCampaign)


def run(args: argparse.Namespace) -> int:
    workspace = workspace_of(args)
    if args.json and (args.each or args.here):
        raise InputError("--json is for one campaign that runs in a process of its own",
                         fix="leave out --each and --here")
    if args.each:
        from kopt_tui.cli import batch_runs

        return batch_runs.run_each(workspace, Path(args.manifest), lambda name: start(
            workspace, _campaign(workspace, name), wait=True), again=args.new)
    if not _names_campaign(args.manifest) and not args.new and \
            (running := _running(workspace, Path(args.manifest))):
        return _choose_beside(workspace, running, args)
    campaign = _campaign(workspace, args.manifest)
    if args.json:
        return _start_quietly(workspace, campaign, wait=args.wait)
    if not (args.here or args.wait or _names_campaign(args.manifest)):
        _print_warnings(workspace, campaign)  # --here and --wait print all events
    return here(workspace, campaign) if args.here else start(workspace, campaign, wait=args.wait)


def start(workspace: Path, campaign: str, *, wait: bool = False) -> int:
    """Run a campaign in a host of its own, which outlives this terminal."""
    print(f"{campaign} runs in process {_spawn(workspace, campaign)}; kopt attach {campaign} shows "
          "it", flush=True)
    return follow(workspace, campaign) if wait else 0


def _spawn(workspace: Path, campaign: str) -> int:
    """Start a host for a campaign and return its process. Raises Refused if it runs already."""
    from engine.run import host  # here and below: start-up time

    if (pid := host.owner(workspace, campaign)) is not None:
        raise Refused(f"{campaign} runs already, in process {pid}", fix="kopt attach shows it")
    return host.spawn(workspace, campaign)


def _start_quietly(workspace: Path, name: str, *, wait: bool) -> int:
    """Run a campaign in a host of its own and print it as JSON; with `wait` at its end."""
    pid = _spawn(workspace, name)
    with closing(Reader(workspace)) as reader:
        while wait and is_live(reader, name):
            time.sleep(POLL_S)
        campaign = choose_campaign(reader, name)
        print_json(StartedCampaign(campaign=campaign, pid=pid,
                                   warnings=tuple(_warnings(reader, name))))
    return 1 if wait and campaign.state not in SUCCESSFUL else 0


def here(workspace: Path, campaign: str) -> int:
    """Run the engine in this process, with the dashboard at a terminal, else printing events."""
    from engine.run.engine import Engine

    engine = Engine(workspace, campaign)
    engine.start()
    try:
        if sys.stdin.isatty() and sys.stdout.isatty():
            from kopt_tui.dashboard import launch

            return launch.main(workspace, campaign=campaign, engine=engine)
        code = follow(workspace, campaign, engine=engine)
        if engine.error is not None:
            raise engine.error
        return code
    finally:
        engine.stop()
        engine.join()


def _choose_beside(workspace: Path, running: str, args: argparse.Namespace) -> int:
    """Ask what to do while a campaign of the manifest runs; raise Refused without a terminal."""
    refusal = Refused(f"{running} runs already on this manifest",
                      fix=f"kopt attach {running} shows it, --new starts another campaign")
    prompt = Prompt(quiet=args.json)
    if not prompt.interactive:
        raise refusal
    answer = prompt.choice(f"{running} runs already on this manifest; attach to it, start a new "
                           "campaign, or quit", "--new", ("attach", "new", "quit"), "attach")
    if answer == "quit":
        raise refusal
    if answer == "new":
        args.new = True
        return run(args)
    from kopt_tui.dashboard import launch

    return launch.main(workspace, campaign=running)


def _running(workspace: Path, path: Path) -> str:
    """Return the newest campaign with a live engine of a manifest's project and target, or ""."""
    from engine.manifest import load

    manifest = load.load(path)
    with closing(Reader(workspace)) as reader:
        return next((campaign.id for campaign in reader.campaigns()
                     if campaign.op == manifest.target_op and is_live(reader, campaign.id)
                     and Path(campaign.project).resolve() == Path(manifest.project)), "")


def _print_warnings(workspace: Path, campaign: str) -> None:
    """Print what the start of a campaign warned about."""
    with closing(Reader(workspace)) as reader:
        for message in _warnings(reader, campaign):
            print_note(message)


def _warnings(reader: Reader, campaign: str) -> list[str]:
    return [str(phrases.facts(event).get("message", ""))
            for event in reader.events_of(campaign, "warning")]


def _names_campaign(name: str) -> bool:
    return not Path(name).exists() and "/" not in name and not name.endswith((".yaml", ".yml"))


def _campaign(workspace: Path, name: str) -> str:
    """Return the campaign to run: a new one from a manifest file, or an existing one."""
    from engine.campaign import setup as campaigns

    if _names_campaign(name):
        return campaigns.open_campaign(workspace, name).id
    return campaigns.create(workspace, Path(name)).id
