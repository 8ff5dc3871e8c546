"""`kopt status`: list campaigns and their states."""

from __future__ import annotations

import argparse

import msgspec

from engine.journal.liveness import host_name
from engine.journal.read import Reader
from engine.journal.records import Campaign
from kopt_tui.cli.campaign_choice import choose_campaign, is_live, open_journal
from kopt_tui.cli.json_output import print_json
from kopt_tui.cli.parser import Commands, add_campaign, add_json, workspace_of
from kopt_tui.cli.text_table import print_table
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.campaign_rows import speedup

HEADERS = ("campaign", "state", "round", "best", "waiting", "device", "last activity", "")
ACTIVE = ("running", "paused")


class CampaignStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign, how many of its candidates wait for approval, and who runs it now."""

    campaign: Campaign
    waiting: int
    live: bool
    engine: str = ""


def add(sub: Commands) -> None:
    parser = sub.add_parser("status")
    add_campaign(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        chosen = [choose_campaign(reader, args.campaign)] if args.campaign else \
            reader.campaigns()
        counts = reader.waiting_counts()
        statuses = [_status(reader, campaign, counts.get(campaign.id, 0)) for campaign in chosen]
    if args.json:
        print_json({"workspace": str(workspace_of(args).absolute()), "campaigns": statuses})
        return 0
    if not statuses:
        print(f"no campaign in {workspace_of(args)} yet: kopt demo runs one")
        return 0
    print_table(HEADERS, map(_row, statuses), right="round waiting")
    return 0


def best(campaign: Campaign) -> str:
    """Return a campaign's headline such as `2.31x [2.25, 2.37]`, empty before the first keep."""
    headline = speedup(campaign.speedup, campaign.speedup_low, campaign.speedup_high)
    return phrases.best(headline, campaign.best_commit, campaign.base_commit)


def _status(reader: Reader, campaign: Campaign, waiting: int) -> CampaignStatus:
    lease = reader.lease(campaign.id)
    live = is_live(reader, campaign.id)
    engine = f"{host_name(lease)} {lease.pid}" if live and lease else ""
    return CampaignStatus(campaign=campaign, waiting=waiting, live=live, engine=engine)


def _row(status: CampaignStatus) -> tuple[str, ...]:
    campaign = status.campaign
    if campaign.state in ACTIVE and not status.live:
        note = "its engine is gone: kopt resume continues the campaign"
    else:
        note = campaign.outcome or (campaign.phase if status.live else "")
    return (campaign.id, phrases.signed(campaign.state),
            phrases.rounds(campaign.round, campaign.rounds_max), best(campaign),
            str(status.waiting or ""), campaign.device or campaign.gpu,
            phrases.stamp(campaign.updated_at), note)
