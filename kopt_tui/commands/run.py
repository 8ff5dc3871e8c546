"""`kopt run`: start or continue a campaign in a background process."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.manifest import load
from harness.errors import InputError, Refused
from kopt_tui.cli.campaign_choice import choose_campaign, is_live, only_answers
from kopt_tui.cli.event_stream import CONTINUES, POLL_S, SUCCESSFUL, follow, follow_start
from kopt_tui.cli.output import print_json, print_note
from kopt_tui.cli.parser import MANIFEST, add_json, workspace_of
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot import event_words, phrases

if TYPE_CHECKING:  # start-up time
    from engine.manifest.schema import Manifest
    from engine.run.engine import Engine

T = TypeVar("T")
AT_WORK = ("running", "paused", "judging")
"""While a campaign is in one of these states, running its manifest again needs confirmation."""


class StartedCampaign(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign in the process `pid`; with --wait as it is at its end."""

    campaign: Campaign
    pid: int
    warnings: tuple[str, ...]


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST", nargs="?", default=str(MANIFEST),
                        help="a manifest file (starts a campaign) or the name of a campaign to "
                        "continue; with "
                        f"--each a folder (default: ./{MANIFEST})")
    parser.add_argument("--each", action="store_true",
                        help="run the manifests that kopt new FOLDER --each wrote, one after the "
                        "other; repeat the command to continue after an interruption")
    parser.add_argument("--here", action="store_true",
                        help="run in this process, with the dashboard if this is a terminal")
    parser.add_argument("--wait", action="store_true",
                        help="print the campaign's events until it ends")
    parser.add_argument("--new", action="store_true",
                        help="start another campaign even if one of this manifest is running; with "
                        "--each even if one has ended")
    add_json(parser, StartedCampaign)


def run(args: argparse.Namespace) -> int:
    workspace = workspace_of(args)
    if args.json and (args.each or args.here):
        raise InputError("--json needs a single campaign in a background process",
                         fix="leave out --each and --here")
    if args.each:
        from kopt_tui.cli import batch_runs

        return batch_runs.run_each(workspace, Path(args.manifest), lambda name: start(
            workspace, name, wait=True), again=args.new)
    try:
        if args.here:
            return here(*_begin(workspace, args.manifest, _start_engine, beside=args.new,
                                prompt=Prompt(quiet=False)))
        begun = _begin(workspace, args.manifest, _spawn, beside=args.new,
                       warns=not (args.wait or args.json or sys.stdout.isatty()),
                       prompt=Prompt(quiet=args.json))
    except RunsAlready as refusal:
        return _choose_beside(workspace, refusal, args)
    if args.json:
        return _report_as_json(workspace, *begun, wait=args.wait)
    return _report(workspace, *begun, wait=args.wait,
                   is_new=not _names_campaign(workspace, args.manifest))


class RunsAlready(Refused):
    """A campaign of the manifest has a live engine."""

    def __init__(self, campaign: Campaign) -> None:
        super().__init__(
            f"{campaign.id} is already running on this manifest"
            if phrases.state(campaign, live=True) != "judging" else
            f"{campaign.id} is still judging, {phrases.work(campaign)}",
            fix=f"kopt attach {campaign.id} shows it, --new starts another campaign")
        self.campaign = campaign.id


def start(workspace: Path, name: str, *, wait: bool = False) -> int:
    """Run a campaign, by its manifest or its name, in a host that outlives this terminal."""
    return _report(workspace, *_begin(workspace, name, _spawn), wait=wait)


def _begin(workspace: Path, name: str, launch: Callable[[Path, str], T], *, beside: bool = False,
           warns: bool = False, prompt: Prompt | None = None) -> tuple[str, T]:
    """Launch a campaign; return its name and what `launch` returned.

    `launch` returns when the engine has its lease. The manifest's file is locked until then: if two
    processes start it at once, the second finds the first one's campaign. A campaign whose engine
    is gone while a process answers a request continues after that; `prompt` asks whether to
    continue one that was interrupted. Raises RunsAlready for a running campaign, unless `beside`.
    """
    from engine.campaign import setup as campaigns  # here and below: start-up time

    if _names_campaign(workspace, name):
        campaign = campaigns.open_campaign(workspace, name).id
        _await_answer(workspace, campaign)
        return campaign, launch(workspace, campaign)
    path = Path(name)
    manifest = load.load(path)
    with path.open("rb") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        earlier = [] if beside else _of_manifest(workspace, manifest)
        if running := next((campaign for campaign, state in earlier if state in AT_WORK), None):
            if running.state in phrases.CONTINUABLE and _await_answer(workspace, running.id):
                return running.id, launch(workspace, running.id)
            raise RunsAlready(running)
        if earlier and earlier[0][1] == "lost" and _continues(earlier[0][0], prompt):
            return earlier[0][0].id, launch(workspace, earlier[0][0].id)
        campaign = campaigns.create(workspace, path).id
        if warns:  # --here and --wait print all events
            with closing(Reader(workspace)) as reader:
                for message in _warnings(reader, campaign):
                    print_note(message)
        return campaign, launch(workspace, campaign)


def _continues(lost: Campaign, prompt: Prompt | None) -> bool:
    """Return whether a person continues an interrupted campaign; without a terminal, say how to.
    """
    what = f"{lost.id} was interrupted in round {lost.round}"
    if prompt is not None and prompt.interactive:
        return prompt.choice(f"{what}; continue it, or start a new campaign", "--new",
                             ("continue", "new"), "continue") == "continue"
    print_note(f"{what}, and kopt resume {lost.id} continues it; this run starts another campaign")
    return False


def _await_answer(workspace: Path, campaign: str) -> bool:
    """Wait for a process that only answers a request to a campaign; return whether there was one.
    """
    with closing(Reader(workspace)) as reader:
        if not only_answers(reader, campaign):
            return False
        print_note(f"a process answers a request to {campaign} (seconds to a minute); the campaign "
                   "continues after that")
        while only_answers(reader, campaign):
            time.sleep(POLL_S)
    return True


def _spawn(workspace: Path, campaign: str) -> int:
    """Start a host for a campaign and return its process. Raises Refused if it runs already."""
    from engine.run import host

    if (pid := host.owner(workspace, campaign)) is not None:
        raise Refused(f"{campaign} is already running in process {pid}",
                      fix="kopt attach shows it")
    return host.spawn(workspace, campaign)


def _start_engine(workspace: Path, campaign: str) -> Engine:
    """Start the engine in this process; return it as soon as it has the lease or has failed."""
    from engine.run import host
    from engine.run.engine import Engine

    engine = Engine(workspace, campaign)
    engine.start()
    while engine.is_alive() and host.owner(workspace, campaign) is None:
        engine.join(0.02)
    return engine


def _report(workspace: Path, campaign: str, pid: int, *, wait: bool,
            is_new: bool = False) -> int:
    """Say where a campaign runs; follow it to its end, or a new one at a terminal to its baseline.

    A wrong reference shows at the baseline, and might otherwise be noticed only hours later.
    """
    print_text(f"{campaign} runs in process {pid}; kopt attach {campaign} shows it")
    if wait:
        try:
            return follow(workspace, campaign)
        except KeyboardInterrupt:
            print(file=sys.stderr)
            print_text(f"{CONTINUES.format(campaign)}, kopt stop {campaign} ends it", sys.stderr)
            raise
    return follow_start(workspace, campaign) if is_new and sys.stdout.isatty() else 0


def _report_as_json(workspace: Path, name: str, pid: int, *, wait: bool) -> int:
    """Print a campaign as JSON; with `wait` as it is at its end."""
    with closing(Reader(workspace)) as reader:
        while wait and is_live(reader, name):
            time.sleep(POLL_S)
        campaign = choose_campaign(reader, name)
        print_json(StartedCampaign(campaign=campaign, pid=pid,
                                   warnings=tuple(_warnings(reader, name))))
    return 1 if wait and campaign.state not in SUCCESSFUL else 0


def here(campaign: str, engine: Engine) -> int:
    """Follow an engine of this process, with the dashboard at a terminal, else printing events."""
    try:
        if sys.stdin.isatty() and sys.stdout.isatty():
            from kopt_tui.dashboard import launch

            return launch.main(engine.workspace, campaign=campaign, engine=engine)
        code = follow(engine.workspace, campaign, engine=engine)
        if engine.error is not None:
            raise engine.error
        return code
    finally:
        engine.stop()
        engine.join()


def _choose_beside(workspace: Path, refusal: RunsAlready, args: argparse.Namespace) -> int:
    """Ask what to do while a campaign of the manifest runs; raise Refused without a terminal."""
    prompt = Prompt(quiet=args.json)
    if not prompt.interactive:
        raise refusal
    answer = prompt.choice(f"{refusal.what}; attach to it, "
                           "start a new campaign, or quit", "--new", ("attach", "new", "quit"),
                           "attach")
    if answer == "quit":
        raise refusal
    if answer == "new":
        args.new = True
        return run(args)
    from kopt_tui.dashboard import launch

    return launch.main(workspace, campaign=refusal.campaign)


def _of_manifest(workspace: Path, manifest: Manifest) -> list[tuple[Campaign, str]]:
    """Return the campaigns of a manifest's project and op with their states, the newest first.

    The states are those of `kopt status`, but a paused campaign without an engine is lost too.
    """
    with closing(Reader(workspace)) as reader:
        return [(campaign, _state(reader, campaign)) for campaign in reader.campaigns()
                if campaign.op == manifest.target_op
                and Path(campaign.project).resolve() == Path(manifest.project)]


def _state(reader: Reader, campaign: Campaign) -> str:
    if is_live(reader, campaign.id):
        answers = only_answers(reader, campaign.id)
        return phrases.state(campaign, live=True, answers_only=answers).replace("new", "running")
    return "lost" if campaign.state in ("running", "paused") else campaign.state


def _warnings(reader: Reader, campaign: str) -> list[str]:
    """Return what the start of a campaign warned about."""
    return [str(event_words.facts(event).get("message", ""))
            for event in reader.events_of(campaign, "warning")]


def _names_campaign(workspace: Path, name: str) -> bool:
    """Return whether a name means a campaign, not a file; a campaign's own folder is no file."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        return False
    return not Path(name).exists() or Path(name).resolve() == (workspace / name).resolve()
