"""Find the campaign, the candidate or the project that a verb is about."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from engine.journal.liveness import alive
from engine.journal.read import Reader
from engine.journal.records import Campaign, Candidate
from engine.manifest.load import load as load_manifest
from harness.errors import InputError, KoptError, Refused
from harness.formats.text import suggest
from kopt_tui.cli.parser import MANIFEST, workspace_of
from kopt_tui.snapshot import phrases


def project_here() -> Path:
    """Return the project of the manifest in this folder, else this folder."""
    try:
        return Path(load_manifest(MANIFEST).project) if MANIFEST.is_file() else Path.cwd()
    except KoptError:  # a file of another program, or a faulty one: `kopt manifest` explains that
        return Path.cwd()


def open_journal(args: argparse.Namespace) -> closing[Reader]:
    """Open the workspace's journal for reading."""
    return closing(Reader(workspace_of(args)))


def choose_campaign(reader: Reader, name: str | None) -> Campaign:
    """Return the campaign of this name or the only one with this prefix; None: the last active."""
    campaigns = reader.campaigns()
    if not campaigns:
        raise InputError("there is no campaign yet", where=str(reader.path.parent),
                         fix="kopt demo runs one; kopt new, then kopt run, starts your own")
    if name is None:
        return campaigns[0]
    matching = [campaign for campaign in campaigns if campaign.id == name] or \
        [campaign for campaign in campaigns if campaign.id.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(campaign.id for campaign in matching[:4])
        raise InputError(f"{name!r} matches {names}", fix="give more of the name")
    raise InputError(f"no campaign {name!r}", where=str(reader.path.parent),
                     fix=suggest(name, [campaign.id for campaign in campaigns])
                     or "kopt status lists them")


def find_candidate(reader: Reader, name: str | None) -> Candidate | None:
    """Return the candidate that a name means, None if it means a campaign or is None."""
    if name is None or any(campaign.id.startswith(name) for campaign in reader.campaigns()):
        return None
    try:
        return reader.candidate(name)
    except InputError as error:
        if "ambiguous" in error.what:
            raise
        choose_campaign(reader, None)  # raises InputError if there is no campaign yet
        raise InputError(f"no campaign or candidate {name!r}", where=str(reader.path.parent),
                         fix="kopt status lists campaigns, kopt show CAMPAIGN its candidates"
                         ) from None


def choose_running(reader: Reader, name: str | None) -> Campaign:
    """Return the named campaign, or the only one that runs.

    Raises Refused if no engine runs it, InputError if several run and none is named.
    """
    if name is None:
        live = [campaign for campaign in reader.campaigns() if is_live(reader, campaign.id)]
        if len(live) > 1:
            names = ", ".join(campaign.id for campaign in live)
            raise InputError(f"several campaigns are running: {names}", fix="name one")
        if live:
            return live[0]
    chosen = choose_campaign(reader, name)
    if not is_live(reader, chosen.id):
        raise Refused(f"no engine runs {chosen.id}; it is {phrases.state(chosen, live=False)}",
                      fix=f"kopt resume {chosen.id} continues it"
                      if chosen.state in ("running", "paused")
                      else "kopt status lists the running campaigns")
    return chosen


def is_live(reader: Reader, campaign: str) -> bool:
    """Return whether an engine runs the campaign now, or answers a request to it."""
    lease = reader.lease(campaign)
    return lease is not None and alive(lease)


def only_answers(reader: Reader, campaign: str) -> bool:
    """Return whether a process answers a request to the campaign now, and then ends."""
    lease = reader.lease(campaign)
    return lease is not None and lease.answers_only and alive(lease)
