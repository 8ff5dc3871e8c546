"""Read the journal, for the dashboard, the command line and the reports."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from engine.journal import database
from engine.journal.database import OwnedConnection
from engine.journal.judged_rows import DecisionRow, VerdictRow
from engine.journal.liveness import Lease
from engine.journal.model_costs import ModelBill, ModelCost
from engine.journal.records import (
    Bottleneck,
    Campaign,
    Candidate,
    CandidateTask,
    Control,
    Event,
    Round,
    Slot,
    TrialRow,
)
from engine.journal.rows import Record, Value, fetch
from engine.task import Task
from harness.errors import InputError
from harness.formats.quantities import counted, listed

T = TypeVar("T")


class Reader:
    """A journal's read-only view for one thread. Raises InputError, EnvironmentFault."""

    def __init__(self, workspace: Path) -> None:
        self.path = workspace / database.FILE
        self._workspace = workspace
        self._connection: OwnedConnection | None = None
        self._identity: tuple[int, ...] = ()
        self._opened = 0
        self._open()

    def data_version(self) -> int:
        """Return a number that changes when others commit, 0 without a journal; takes 10 us."""
        connection = self._open()
        if connection is None:
            return 0
        with database.faults(self.path):
            version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        return (self._opened << 32) + version

    def campaigns(self) -> list[Campaign]:
        """Return all campaigns, newest activity first."""
        return self._all(Campaign, "ORDER BY updated_at DESC, id DESC")

    def campaign(self, campaign: str) -> Campaign | None:
        return self._one(Campaign, "WHERE id = ?", campaign)

    def lease(self, campaign: str) -> Lease | None:
        """Return the lease of the campaign's owner, or of an engine that ended without release."""
        return self._one(Lease, "WHERE campaign = ? AND pid > 0", campaign)

    def rounds(self, campaign: str) -> list[Round]:
        return self._all(Round, "WHERE campaign = ? ORDER BY n", campaign)

    def slots(self, campaign: str, round: int | None = None) -> list[Slot]:
        """Return a round's slots, or all of a campaign, in the order of the plans."""
        if round is None:
            return self._all(Slot, "WHERE campaign = ? ORDER BY rowid", campaign)
        return self._all(Slot, "WHERE campaign = ? AND round = ? ORDER BY rowid", campaign, round)

    def rounds_with(self, campaign: str, stage: str) -> set[int]:
        """Return the rounds of which a slot has ended with this stage."""
        return {slot.round for slot in self._all(
            Slot, "WHERE campaign = ? AND stage = ?", campaign, stage)}

    def candidates(self, campaign: str, *, states: Collection[str] = (),
                   ids: Collection[str] | None = None) -> list[Candidate]:
        """Return the campaign's candidates, oldest first; `states` and `ids` select some."""
        only = f"AND state IN ({_marks(states)})" if states else ""
        if ids is not None:
            only += f" AND id IN ({_marks(ids)})"
        return self._all(Candidate, f"WHERE campaign = ? {only} ORDER BY created_at, rowid",
                         campaign, *states, *(ids or ()))

    def candidate(self, id_prefix: str, campaign: str | None = None) -> Candidate:
        """Return the candidate whose id starts with `id_prefix`, which may be `CAMPAIGN/PREFIX`.

        Raises InputError if none or several match.
        """
        owner, _, start = id_prefix.rpartition("/")
        candidates = self._all(
            Candidate, "WHERE substr(id, 1, ?) = ? AND campaign = COALESCE(?, campaign)",
            len(start), start, campaign or owner or None)
        matches = [match for match in candidates if match.id == start] or candidates
        if not start or not matches:
            raise InputError(f"no candidate {id_prefix!r}", where=campaign or str(self.path),
                             fix="`kopt show` lists them")
        if len(matches) > 1:
            raise InputError(
                f"candidate {id_prefix!r} is ambiguous: {counted(len(matches), 'candidate')} in "
                f"{counted(len({match.campaign for match in matches}), 'campaign')}",
                fix="name one: " + listed(
                    [f"{match.campaign}/{match.id[:12]}" for match in matches], 4))
        return matches[0]

    def forms(self, candidate: Candidate) -> list[Candidate]:
        """Return a candidate and those that it is another form of, its own form first."""
        forms = [candidate]
        while forms[-1].form_of:
            forms.append(self.candidate(forms[-1].form_of, candidate.campaign))
        return forms

    def task(self, campaign: str, candidate: str) -> Task | None:
        """Return the task that a candidate came from, None if it did not come from a worker."""
        row = self._one(CandidateTask, "WHERE campaign = ? AND candidate = ?", campaign, candidate)
        return None if row is None else row.task

    def model_costs(self, campaign: str) -> list[ModelCost]:
        """Return what models cost a campaign, by attempt."""
        return self._all(ModelCost, "WHERE campaign = ? ORDER BY round, rowid", campaign)

    def trials(self, campaign: str) -> list[TrialRow]:
        """Return the trials of all searches, oldest first."""
        return self._all(TrialRow, "WHERE campaign = ? ORDER BY id", campaign)

    def verdicts(self, campaign: str, *, candidate: str = "",
                 limit: int | None = None) -> list[VerdictRow]:
        """Return verdicts, newest first; `candidate` filters by candidate."""
        return self._of_candidate(VerdictRow, campaign, candidate, limit)

    def verdict(self, campaign: str, candidate: str, *, purpose: str, incumbent_tree: str,
                harness_version: str) -> VerdictRow | None:
        """Return a recorded verdict, so that it is not measured again; None if there is none."""
        return self._one(
            VerdictRow,
            "WHERE campaign = ? AND candidate = ? AND purpose = ? AND incumbent_tree = ?"
            " AND harness_version = ?",
            campaign, candidate, purpose, incumbent_tree, harness_version)

    def decisions(self, campaign: str, *, candidate: str = "",
                  limit: int | None = None) -> list[DecisionRow]:
        """Return decisions, newest first; `candidate` filters by candidate."""
        return self._of_candidate(DecisionRow, campaign, candidate, limit)

    def newest_verdict(self, campaign: str, candidate: str) -> VerdictRow | None:
        return next(iter(self.verdicts(campaign, candidate=candidate, limit=1)), None)

    def newest_decision(self, campaign: str, candidate: str) -> DecisionRow | None:
        return next(iter(self.decisions(campaign, candidate=candidate, limit=1)), None)

    def bottlenecks(self, campaign: str, round: int | None = None) -> list[Bottleneck]:
        """Return a round's bottlenecks by rank, by default those of the newest round with some."""
        newest = "(SELECT max(round) FROM bottlenecks WHERE campaign = ?)"
        of_round = newest if round is None else "?"
        return self._all(Bottleneck, f"WHERE campaign = ? AND round = {of_round} ORDER BY rank",
                         campaign, campaign if round is None else round)

    def surveys(self, campaign: str) -> dict[int, tuple[Bottleneck, ...]]:
        """Return the bottlenecks of every round that has some, by rank."""
        rows = self._all(Bottleneck, "WHERE campaign = ? ORDER BY round, rank", campaign)
        return {n: tuple(group) for n, group in groupby(rows, key=lambda row: row.round)}

    def events(self, *, campaign: str | None = None, after: int = 0,
               limit: int = 200) -> list[Event]:
        """Return the events that follow sequence number `after`, oldest first."""
        campaign_only, parameters = _of(campaign)
        return self._all(Event, f"WHERE seq > ? {campaign_only} ORDER BY seq LIMIT ?",
                         after, *parameters, limit)

    def last_events(self, campaign: str | None = None, limit: int = 200) -> list[Event]:
        """Return the newest events, oldest first."""
        campaign_only, parameters = _of(campaign)
        newest = self._all(Event, f"WHERE seq > 0 {campaign_only} ORDER BY seq DESC LIMIT ?",
                           *parameters, limit)
        return newest[::-1]

    def events_of(self, campaign: str, kind: str) -> list[Event]:
        """Return all of a campaign's events of one kind, oldest first; for rare kinds only."""
        return self._all(Event, "WHERE campaign = ? AND kind = ? ORDER BY seq", campaign, kind)

    def payloads(self, campaign: str, kind: str, into: type[T]) -> list[T]:
        """Return the payloads of a campaign's events of one kind, oldest first."""
        return [event.decoded(into) for event in self.events_of(campaign, kind)]

    def newest_event(self, campaign: str, kind: str) -> Event | None:
        """Return a campaign's newest event of a kind."""
        return self._one(Event, "WHERE campaign = ? AND kind = ? ORDER BY seq DESC", campaign, kind)

    def controls(self, campaign: str, *, open_only: bool = False) -> list[Control]:
        """Return people's requests to the campaign, oldest first."""
        not_applied = "AND applied_at IS NULL" if open_only else ""
        return self._all(Control, f"WHERE campaign = ? {not_applied} ORDER BY id", campaign)

    def pauses_soon(self, campaign: str) -> bool:
        """Return whether the newest request to pause or resume that was not refused is a pause."""
        newest = [control.verb for control in self.controls(campaign)
                  if control.verb in ("pause", "resume")
                  and not control.outcome.startswith("refused")][-1:]
        return newest == ["pause"]

    def waiting_counts(self) -> dict[str, int]:
        """Return how many candidates wait for approval, by campaign; only campaigns with some."""
        return dict(map(tuple, self._rows(
            "SELECT campaign, count(*) FROM candidates WHERE state = 'waiting'"
            " GROUP BY campaign")))

    def model_bills(self) -> dict[str, ModelBill]:
        """Return what models have cost, by campaign; only campaigns in which one was asked."""
        return {campaign: ModelBill(attempts=attempts, unpriced=unpriced, cost_usd=cost_usd)
                for campaign, attempts, unpriced, cost_usd in self._rows(
                    "SELECT campaign, count(*), sum(unpriced > 0), sum(cost_usd)"
                    " FROM model_costs GROUP BY campaign")}

    def _rows(self, query: str) -> list[sqlite3.Row]:
        connection = self._open()
        if connection is None:
            return []
        with database.faults(self.path):
            return connection.execute(query).fetchall()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _all(self, record: type[Record], rest: str, *values: Value) -> list[Record]:
        connection = self._open()
        if connection is None:
            return []
        with database.faults(self.path):
            return fetch(connection, record, rest, values)

    def _one(self, record: type[Record], rest: str, *values: Value) -> Record | None:
        records = self._all(record, f"{rest} LIMIT 1", *values)
        return records[0] if records else None

    def _of_candidate(self, record: type[Record], campaign: str, candidate: str,
                      limit: int | None) -> list[Record]:
        """Return the newest rows of a campaign, or of one of its candidates."""
        candidate_only = "AND candidate = ?" if candidate else ""
        parameters = (campaign, candidate) if candidate else (campaign,)
        return self._all(record, f"WHERE campaign = ? {candidate_only} ORDER BY id DESC LIMIT ?",
                         *parameters, -1 if limit is None else limit)

    def _open(self) -> sqlite3.Connection | None:
        """Return the connection, opened again if the file was replaced; None without a file."""
        identity = database.identity(self.path)
        if self._connection is not None and identity == self._identity:
            return self._connection.get()
        self.close()
        connection = database.open_for_reading(self._workspace)
        if connection is None:
            return None
        self._connection = OwnedConnection(connection)
        self._identity = identity
        self._opened += 1
        return connection


class TransactionReader(Reader):
    """Reads on a writer's connection, and so sees what its open transaction has written."""

    def __init__(self, workspace: Path, connection: OwnedConnection) -> None:
        self._shared = connection
        super().__init__(workspace)

    def _open(self) -> sqlite3.Connection:
        return self._shared.get()


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _of(campaign: str | None) -> tuple[str, Iterable[str]]:
    return ("", ()) if campaign is None else ("AND campaign = ?", (campaign,))
