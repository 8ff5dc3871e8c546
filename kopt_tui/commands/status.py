"""`kopt status`: list campaigns and their states."""

from __future__ import annotations

import argparse
import time

import msgspec

from engine.history import campaign_view, history, waiting_line
from engine.journal.model_costs import ModelBill
from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.records import measured
from engine.verify import reference_lines
from harness.formats.quantities import counted
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
    """How its best compares with compilers and libraries, "" if they are not measured."""
    models: ModelBill | None
    """What language models cost, null if none was asked."""
    pauses_soon: bool = False
    """Whether it pauses at the end of its round."""
    unanswered: tuple[str, ...] = ()
    """The requests of people that no engine has answered yet: `approve 1a2b`."""
    live: bool
    """Whether an engine runs it; `engine` is then its host and process."""
    engine: str
    answers_only: bool = False
    """Whether that only answers a request, and then ends."""
    has_untried_best: bool = False
    """Whether its best has changed since it ended because nothing was left to try."""


class WorkspaceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The campaigns of a workspace, the newest first."""

    workspace: str
    campaigns: tuple[CampaignStatus, ...]


HEADERS = ("campaign", "state", "iteration", "best", "last")


def add(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser, "all campaigns")
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
        now = time.time()
        print_table(HEADERS, (_row(status, now) for status in listed),
                    notes=[_notes(status) for status in listed])
    else:
        print(f"no campaign in {workspace_of(args)} yet: kopt demo runs one")
    return 0


def _status(reader: Reader, campaign: Campaign, waiting: int,
            bill: ModelBill | None) -> CampaignStatus:
    engine = engine_state(reader, campaign.id)
    live = engine.word == "alive"
    return CampaignStatus(
        campaign=campaign, waiting=waiting, models=bill, live=live,
        pauses_soon=campaign.state == "running" and live
        and reader.pauses_soon(campaign.id),
        unanswered=tuple(dict.fromkeys(
            f"{control.verb} {control.candidate[:8]}".strip()
            for control in reader.controls(campaign.id, open_only=True))),
        provisional=waiting_line.provisional(reader, campaign.id) if waiting else "",
        standing=measured.standing(history.read(reader, campaign.id))
        if reference_lines.read(reader, campaign.id) else "",
        engine=f"{engine.host} {engine.pid}" if live else "",
        answers_only=live and engine.answers_only,
        has_untried_best=campaign_view.has_untried_best(reader, campaign))


def _row(status: CampaignStatus, now: float) -> tuple[str, ...]:
    campaign = status.campaign
    return (campaign.id, phrases.signed(phrases.state(
                campaign, live=status.live, answers_only=status.answers_only)),
            campaign.iteration_place, phrases.best_or_waiting(campaign, status.provisional),
            phrases.moment(campaign.updated_at, now))


def _notes(status: CampaignStatus) -> list[str]:
    """Return the notes below a campaign's row, first those that need a person."""
    campaign, models = status.campaign, status.models
    waits = status.provisional or f"{counted(status.waiting, 'candidate')} waiting for approval"
    requests, starts = ", ".join(status.unanswered), f"; kopt resume {campaign.id} starts an engine"
    notes = ((status.waiting, f"? {waits} (kopt approve, kopt reject)"),
             (requests, f"» not answered yet: {requests}{'' if status.live else starts}"),
             (True, phrases.phase(
                 campaign, live=status.live, answers_only=status.answers_only) + (
                 ", pauses after this round" if status.pauses_soon else "")),
             (status.has_untried_best, phrases.untried_best(campaign)),
             (True, status.standing), (True, phrases.result(campaign)),
             (models and models.short, f"models {models.short if models else ''}"),
             (True, f"on {campaign.device or campaign.gpu}"))
    return [text for holds, text in notes if holds and text]
