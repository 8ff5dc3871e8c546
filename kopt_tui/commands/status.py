"""`kopt status`: list campaigns and how they stand."""

from __future__ import annotations

import argparse

import msgspec

from engine.journal.lease import host_name
from engine.journal.read import Reader
from engine.journal.records import Campaign
from kopt_tui.cli.campaign_choice import campaign, is_live, journal
from kopt_tui.cli.json_output import emit
from kopt_tui.cli.parser import Commands, add_campaign, add_json
from kopt_tui.cli.text_table import show
from kopt_tui.cli.workspace import workspace_of
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.snapshot import Speedup

HEADERS = ("campaign", "state", "round", "best", "waiting", "device", "last activity", "")
ACTIVE = ("running", "paused")


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign, how many of its candidates wait, and who runs it now."""

    campaign: Campaign
    waiting: int
    live: bool
    engine: str = ""


def add(sub: Commands) -> None:
    parser = sub.add_parser("status")
    add_campaign(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    with journal(args) as reader:
        chosen = [campaign(reader, args.campaign)] if args.campaign else reader.campaigns()
        counts = reader.waiting_counts()
        standings = [_standing(reader, one, counts.get(one.id, 0)) for one in chosen]
    if args.json:
        emit({"workspace": str(workspace_of(args).absolute()), "campaigns": standings})
        return 0
    if not standings:
        print(f"no campaign in {workspace_of(args)} yet: kopt demo runs one")
        return 0
    show(HEADERS, map(_row, standings), right="round waiting")
    return 0


def best(one: Campaign) -> str:
    """Return a campaign's headline such as "2.31x [2.25, 2.37]", empty before there is one."""
    if one.speedup is None:
        return "" if one.best_commit == one.base_commit else phrases.UNMEASURED
    return phrases.speedup(Speedup(one.speedup, one.speedup_low, one.speedup_high))


def _standing(reader: Reader, one: Campaign, waiting: int) -> Standing:
    lease = reader.lease(one.id)
    live = is_live(reader, one)
    engine = f"{host_name(lease)} {lease.pid}" if live and lease else ""
    return Standing(campaign=one, waiting=waiting, live=live, engine=engine)


def _row(standing: Standing) -> tuple[str, ...]:
    one = standing.campaign
    if one.state in ACTIVE and not standing.live:
        note = "its engine is gone: kopt resume goes on with it"
    else:
        note = one.outcome or (one.phase if standing.live else "")
    return (one.id, phrases.signed(one.state), phrases.rounds(one.round, one.rounds_max), best(one),
            str(standing.waiting or ""), one.device or one.gpu, phrases.stamp(one.updated_at), note)
