"""Writes the journal: every change of state and its event, in one transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from engine.journal import database
from engine.journal.leased_connection import row_id
from engine.journal.records import Campaign, Control, ControlVerb
from engine.journal.rows import Value, fetch, insert, values
from engine.journal.write_candidates import CandidateWriter
from engine.journal.write_rounds import RoundWriter
from harness.errors import InputError


class Writer(RoundWriter, CandidateWriter):
    """Writes what an engine records: one method per change, each with its event."""

    def add_campaign(self, campaign: Campaign) -> None:
        """Record a new campaign; raises InputError if its id is taken."""
        now = time.time()
        campaign = msgspec.structs.replace(
            campaign, created_at=campaign.created_at or now, updated_at=now)
        with self.change(campaign.id) as connection:
            if self.one(Campaign, "WHERE id = ?", campaign.id):
                raise InputError(f"campaign {campaign.id} exists already", where=str(self.path),
                                 fix="give the new campaign another name")
            connection.execute(insert(campaign), values(campaign))
            self.append(campaign.id, "campaign.created", campaign.id, {
                "op": campaign.op, "backend": campaign.backend, "gpu": campaign.gpu,
                "device": campaign.device, "base_commit": campaign.base_commit,
                "utc_offset_s": time.localtime(campaign.created_at).tm_gmtoff,
            })

    def set_campaign(self, campaign: str, *, kind: str, payload: Mapping[str, object],
                     **fields: Value) -> None:
        """Change fields of a campaign, with an event of `kind` and `payload`."""
        unknown = set(fields) - set(Campaign.__struct_fields__)
        if unknown:
            raise TypeError(f"a campaign has no {', '.join(sorted(unknown))}")
        with self.change(campaign) as connection:
            self.update(connection, "campaigns", fields, {"id": campaign})
            self.append(campaign, kind, campaign, payload)

    def tick_campaign(self, campaign: str, *, phase: str) -> None:
        """Overwrite a campaign's phase, without an event."""
        with self.change(campaign) as connection:
            self.update(connection, "campaigns", {"phase": phase}, {"id": campaign})

    def event(self, campaign: str, kind: str, ref: str = "", **payload: object) -> int:
        """Append an event that changes no state (gate, warning, log); return its number."""
        with self.change(campaign):
            return self.append(campaign, kind, ref, payload)

    def open_controls(self, campaign: str) -> list[Control]:
        """Return the requests that no engine has answered, oldest first."""
        with database.faults(self.path):
            return fetch(self._connection.get(), Control,
                         "WHERE campaign = ? AND applied_at IS NULL ORDER BY id", (campaign,))

    def finish_control(self, id: int, outcome: str) -> None:
        """Answer a request; a second answer to the same request is ignored."""
        with self.transaction() as connection:
            control = self.one(Control, "WHERE id = ?", id)
            if control is None or control.applied_at is not None:
                return
            self.check_lease(control.campaign)
            self.update(connection, "controls",
                        {"applied_at": time.time(), "outcome": outcome}, {"id": id})
            self.append(control.campaign, "control.applied", control.candidate, {
                "control": id, "verb": control.verb, "candidate": control.candidate,
                "by": control.by, "outcome": outcome,
            })


def request(workspace: Path, campaign: str, verb: ControlVerb, *, by: str, candidate: str = "",
            expected_base: str = "", expected_verdict: int | None = None) -> int:
    """Send a request to a campaign's engine, from any process; return the control's id.

    `expected_base` and `expected_verdict` are what the person saw: the engine refuses the request
    if they have changed. Raises InputError if there is no such campaign.
    """
    control = Control(id=0, campaign=campaign, verb=verb, candidate=candidate,
                      expected_base=expected_base, expected_verdict=expected_verdict, by=by,
                      at=time.time())
    writer = Writer(workspace)
    try:
        with writer.transaction() as connection:
            if writer.one(Campaign, "WHERE id = ?", campaign) is None:
                raise InputError(f"no campaign {campaign!r}", where=str(workspace),
                                 fix="`kopt status` lists them")
            number = row_id(connection.execute(insert(control, without="id"),
                                               values(control, without="id")))
            writer.append(campaign, "control.requested", candidate, {
                "control": number, "verb": verb, "candidate": candidate, "by": by,
            })
            return number
    finally:
        writer.close()
