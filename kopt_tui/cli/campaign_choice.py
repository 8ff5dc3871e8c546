"""Which campaign a command means: by name, by the start of it, or the newest."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from engine.journal.lease import alive
from engine.journal.read import Reader
from engine.journal.records import Campaign
from harness.errors import InputError, Refused
from harness.formats.yaml_decode import suggest
from kopt_tui.cli.workspace import workspace_of


@contextmanager
def journal(args: argparse.Namespace) -> Iterator[Reader]:
    """Open the workspace's journal for reading."""
    reader = Reader(workspace_of(args))
    try:
        yield reader
    finally:
        reader.close()


def campaign(reader: Reader, wanted: str | None) -> Campaign:
    """Return the campaign of this name or unique start of a name, by default the newest."""
    known = reader.campaigns()
    if not known:
        raise InputError("there is no campaign yet", where=str(reader.path.parent),
                         fix="kopt demo runs one, kopt new begins your own")
    if wanted is None:
        return known[0]
    found = [one for one in known if one.id == wanted] or \
        [one for one in known if one.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"{wanted!r} fits {', '.join(one.id for one in found[:4])}",
                         fix="give more of its name")
    raise InputError(f"no campaign {wanted!r}", where=str(reader.path.parent),
                     fix=suggest(wanted, [one.id for one in known]))


def running(reader: Reader, wanted: str | None) -> Campaign:
    """Return the named campaign or the only one that runs; raises Refused if it does not run."""
    if wanted is None:
        live = [one for one in reader.campaigns() if is_live(reader, one)]
        if len(live) > 1:
            raise InputError(f"several campaigns run: {', '.join(one.id for one in live)}",
                             fix="name one")
        if live:
            return live[0]
    chosen = campaign(reader, wanted)
    if not is_live(reader, chosen):
        raise Refused(f"no engine runs {chosen.id}, it is {chosen.state}",
                      fix="kopt resume goes on with it" if chosen.state in ("running", "paused")
                      else "kopt status lists what runs")
    return chosen


def is_live(reader: Reader, chosen: Campaign) -> bool:
    """Return whether an engine owns the campaign now."""
    lease = reader.lease(chosen.id)
    return lease is not None and alive(lease)
