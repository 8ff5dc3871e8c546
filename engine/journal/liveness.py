"""The lease row, and whether the engine that holds it still runs.

The host of a lease is "name boot-id pid-namespace": a process id means nothing outside of these.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from pathlib import Path

from engine.journal.records import JournalRow

STALE_S = 60.0
"""An engine on another host counts as dead after this many seconds without a heartbeat."""


class Lease(JournalRow, frozen=True, kw_only=True):
    """The engine that owns a campaign; `pid` is 0 after a release."""

    TABLE = "leases"
    campaign: str
    host: str
    pid: int
    started: float
    """When its process started, seconds since boot."""
    epoch: int
    """Counts the campaign's leases."""
    heartbeat: float
    answers_only: bool = False
    """Whether its process only answers requests and judges patches, and then ends."""


def alive(lease: Lease) -> bool:
    """Return whether the lease's engine still runs.

    On this host the process is looked up. On another host only the heartbeat shows it, so a death
    goes unnoticed for STALE_S seconds.
    """
    if lease.pid == 0:
        return False
    if lease.host != this_host():
        return time.time() - lease.heartbeat <= STALE_S
    return process_start(lease.pid) == lease.started


def host_name(lease: Lease) -> str:
    return lease.host.split(" ")[0]


@functools.cache
def this_host() -> str:
    """Return the name of this host, with its boot id and this process's pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot, namespace = "-", "-"
    name = socket.gethostname().replace(" ", "-") or "-"
    return f"{name} {boot} {namespace}"


def process_start(pid: int) -> float | None:
    """Return when a process started, seconds since boot; None if it has ended or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the command may hold spaces and brackets
    if fields[0] in ("Z", "X"):
        return None
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")
