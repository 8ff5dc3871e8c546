"""Which coding agents get no answer from their model's provider, and when they are tried again.

A round may begin without them. All is computed from the journal, so that another engine can
continue.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from engine.history.history import CampaignHistory
from engine.history.round_resume import OUTAGE
from engine.journal.read import Reader
from engine.manifest.pool_schema import PoolSpec
from engine.planning import past_rounds
from engine.planning.pool_size import Author, authors
from engine.task import AGENT_BACKENDS

LONGEST_PAUSE_S = 900.0
UNANSWERED = (OUTAGE, "failed", "ended", "not begun")
"""Last stages of a slot that do not show whether its model answers."""


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """A coding agent whose provider did not answer in its last rounds; times are of the epoch."""

    author: Author
    reason: str
    began_at: float
    tried_at: float
    """When its last round without an answer ended."""
    retry_at: float

    def waits(self, now: float) -> bool:
        """Return whether its provider is left alone now; not after the clock was set back."""
        return self.tried_at <= now < self.retry_at

    def __str__(self) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(self.retry_at))
        return f"{self.author}: tried again at {at}; {self.reason}"


def of(past: CampaignHistory, reader: Reader, campaign: str,
       pool: PoolSpec) -> tuple[Outage, ...]:
    """Return the agents of which no slot got an answer in their last rounds.

    A campaign that stopped and was resumed tries all of them at once. Each further round in a row
    doubles the pause after it.
    """
    rounds = past.attempts[len(past.attempts) - past_rounds.since_stop(past, reader, campaign):]
    slots = {round.n: reader.slots(campaign, round.n) for round in rounds if past.outages}
    outages = []
    for author in authors(pool):
        reasons, ended, began_at = [], [], 0.0
        for round in reversed(rounds):
            of_author = [slot for slot in slots.get(round.n, ())
                         if (slot.backend, slot.option) == (author.backend, author.option)]
            lost = [slot for slot in of_author if slot.stage == OUTAGE]
            if of_author and (not lost or any(
                    slot.stage not in UNANSWERED for slot in of_author)):
                break
            if lost:
                reasons.append(lost[-1].detail)
                ended.append(round.ended_at or 0.0)
                began_at = min(slot.updated_at for slot in lost)
        if ended:
            outages.append(Outage(author=author, reason=reasons[0], began_at=began_at,
                                  tried_at=ended[0],
                                  retry_at=ended[0] + pause_s(pool, len(ended))))
    return tuple(outages)


def without_agents(past: CampaignHistory, reader: Reader, campaign: str) -> frozenset[int]:
    """Return the rounds of which agents were left out, as their providers did not answer."""
    rounds, is_out = set[int](), False
    for round in past.attempts if past.outages else ():
        stages = {slot.stage for slot in reader.slots(campaign, round.n)
                  if slot.backend in AGENT_BACKENDS}
        is_out = OUTAGE in stages if stages else is_out
        if is_out and not stages:
            rounds.add(round.n)
    return frozenset(rounds)


def pause_s(pool: PoolSpec, rounds: int) -> float:
    """Return the pause after a number of rounds in a row without an answer."""
    longest_s = max(LONGEST_PAUSE_S, pool.outage_pause_s)
    return min(pool.outage_pause_s * 2.0 ** min(rounds - 1, 30), longest_s)


def without_key(pool: PoolSpec) -> tuple[PoolSpec, str]:
    """Return a pool without the backend `agent` if its key is missing here, and why, else "".

    A person resumes a campaign in a shell that may lack the key. Its slots would fail at once and
    use up the campaign's rounds.
    """
    if "agent" not in pool.backends or pool.agent is None or not pool.agent.missing_key:
        return pool, ""
    backends = tuple(name for name in pool.backends if name != "agent")
    return msgspec.structs.replace(pool, backends=backends), pool.agent.missing_key


def without(pool: PoolSpec, outages: Sequence[Outage]) -> PoolSpec:
    """Return a pool without the agents that get no answer."""
    left_out = {outage.author for outage in outages}
    return msgspec.structs.replace(
        pool, cli=tuple(cli for cli in pool.cli if Author("cli", cli.name) not in left_out),
        backends=tuple(name for name in pool.backends if Author(name) not in left_out))
