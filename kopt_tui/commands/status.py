"""`kopt status`: list campaigns and their states."""

from __future__ import annotations

import argparse

import msgspec

from engine.history import history, waiting_line
from engine.journal.model_costs import ModelBill
from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.records import measured
from engine.verify import reference_lines
from kopt_tui.cli.campaign_choice import choose_campaign, open_journal
from kopt_tui.cli.output import print_json, print_table
from kopt_tui.cli.parser import add_campaign, add_json, workspace_of
from kopt_tui.snapshot import phrases
from kopt_tui.snapshot.campaign_rows import engine_state


class CampaignStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign; `waiting` counts the candidates that wait for approval."""

    campaign: Campaign
    waiting: int
    provisional: str
    """The provisional best in words, "" if nothing waits."""
    standing: str
    """Whether its best reaches compilers and libraries, "" where they are not measured."""
    models: ModelBill | None
    """What language models cost, null if none was asked."""
    live: bool
    """Whether an engine runs it; `engine` is then its host and process."""
    engine: str


class WorkspaceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The campaigns of a workspace, the newest first."""

    workspace: str
    campaigns: tuple[CampaignStatus, ...]


HEADERS = ("campaign", "state", "round", "best", "waiting", "device", "last activity", "")


def add(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    add_json(parser, WorkspaceStatus)


def run(args: argparse.Namespace) -> int:
    with open_journal(args) as reader:
        chosen = [choose_campaign(reader, args.campaign)] if args.campaign else \
            reader.campaigns()
        counts, bills = reader.waiting_counts(), reader.model_bills()
        listed = [_status(reader, campaign, counts.get(campaign.id, 0), bills.get(campaign.id))
                  for campaign in chosen]
    if args.json:
        print_json(WorkspaceStatus(workspace=str(workspace_of(args).absolute()),
                                   campaigns=tuple(listed)))
    elif listed:
        print_table(HEADERS, map(_row, listed), right="round waiting",
                    spare=("last activity", "device"))
    else:
        print(f"no campaign in {workspace_of(args)} yet: kopt demo runs one")
    return 0


def _status(reader: Reader, campaign: Campaign, waiting: int,
            bill: ModelBill | None) -> CampaignStatus:
    engine = engine_state(reader, campaign.id)
    live = engine.word == "alive"
    return CampaignStatus(
        campaign=campaign, waiting=waiting, models=bill, live=live,
        provisional=waiting_line.provisional(reader, campaign.id) if waiting else "",
        standing=measured.standing(history.read(reader, campaign.id))
        if reference_lines.read(reader, campaign.id) else "",
        engine=f"{engine.host} {engine.pid}" if live else "")


def _row(own: CampaignStatus) -> tuple[str, ...]:
    campaign = own.campaign
    notes = (own.standing, own.provisional, phrases.phase(campaign, live=own.live),
             f"models {own.models.short}" if own.models and own.models.short else "")
    return (campaign.id, phrases.signed(phrases.state(campaign, live=own.live)),
            campaign.round_place, phrases.best(campaign), str(own.waiting or ""),
            campaign.device or campaign.gpu, phrases.stamp(campaign.updated_at),
            "; ".join(filter(None, notes)))
