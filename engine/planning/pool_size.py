"""How many slots a round has, how many workers run at once, and which coding agents there are."""

from __future__ import annotations

import os

import msgspec

from engine.campaign.setup import Setup
from engine.manifest.pool_schema import PoolSpec

SEARCHES_PER_CARD, AGENTS_PER_CORE = 4, 4
AGENT_BYTES = 1 << 30
"""Memory that a coding agent with its compilers takes, at least."""


class Author(msgspec.Struct, frozen=True):
    """A worker that writes code: its backend, and what the backend uses."""

    backend: str
    option: str = ""

    def __str__(self) -> str:
        return self.option or self.backend


def authors(pool: PoolSpec) -> tuple[Author, ...]:
    """Return the coding agents of a pool, in the order in which they take turns."""
    commands = [Author("cli", command.name) for command in pool.cli if "cli" in pool.backends]
    return (*commands, *([Author("agent")] if "agent" in pool.backends else []))


def default_slots(setup: Setup) -> int:
    """Return the slots of a round: four per card, and with coding agents one per worker at least.
    """
    slots = SEARCHES_PER_CARD * len(setup.devices)
    return max(slots, default_workers(setup)) if authors(setup.manifest.pool) else slots


def default_workers(setup: Setup) -> int:
    """Return how many workers run at once on this host."""
    cards = 0 if setup.device.kind == "cpu" else len(setup.devices)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return workers_of(setup.manifest.pool, cards, len(os.sched_getaffinity(0)), memory)


def workers_of(pool: PoolSpec, cards: int, cores: int, memory_bytes: int) -> int:
    """Return how many workers a host with these cards, cores and bytes of memory runs at once.

    Coding agents wait most of the time, so there are at least `min_workers` and `workers_per_gpu`
    for each card, but at most AGENTS_PER_CORE per core and one per gibibyte of memory. Searches
    occupy a device: at most four per card (the CPU counts as one), and one per core.
    """
    if not authors(pool):
        return max(1, min(SEARCHES_PER_CARD * max(1, cards), cores))
    workers = max(pool.min_workers, pool.workers_per_gpu * cards)
    return max(1, min(workers, AGENTS_PER_CORE * cores, memory_bytes // AGENT_BYTES))
