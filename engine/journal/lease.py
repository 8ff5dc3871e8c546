"""The lease of a campaign: one engine owns it at a time, and is replaced once it is dead."""

from __future__ import annotations

import os
import time

import msgspec

from engine.journal.liveness import alive, host_name, process_start, this_host
from engine.journal.records import Lease
from engine.journal.write import Writer
from harness.errors import Refused


def acquire(writer: Writer, campaign: str) -> Lease:
    """Take the campaign for this process, at once if its owner is dead.

    If several processes try at the same time, exactly one succeeds. Raises Refused while the owner
    is alive.
    """
    pid = os.getpid()
    with writer.transaction():
        before = writer.lease(campaign)
        if before is not None and alive(before):
            raise Refused(
                f"campaign {campaign} is run by process {before.pid} on {host_name(before)}",
                fix="`kopt attach` shows it, `kopt stop` ends it",
            )
        lease = Lease(campaign=campaign, host=this_host(), pid=pid,
                      started=process_start(pid) or 0.0,
                      epoch=(before.epoch if before else 0) + 1, heartbeat=time.time())
        writer.put_lease(lease)
    writer.hold(campaign, lease.epoch)
    if before is not None and before.pid:
        writer.event(campaign, "log", message=(
            f"taken over from process {before.pid} on {host_name(before)}, which has ended"
        ))
    return lease


def heartbeat(writer: Writer, lease: Lease) -> Lease:
    """Renew the heartbeat; raises LeaseLost if another engine has taken over."""
    renewed = msgspec.structs.replace(lease, heartbeat=time.time())
    with writer.change(lease.campaign):
        writer.put_lease(renewed)
    return renewed


def release(writer: Writer, lease: Lease) -> None:
    """Release the campaign; the row stays, because its epoch must never be used twice."""
    with writer.change(lease.campaign):
        writer.put_lease(msgspec.structs.replace(lease, pid=0, heartbeat=time.time()))
    writer.hold(lease.campaign, None)
