"""The lease of a campaign: one engine owns it at a time, and is replaced once it is dead.

The host of a lease is "name boot-id pid-namespace": a process id means nothing outside of these.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from pathlib import Path

import msgspec

from engine.journal.records import Lease
from engine.journal.write import Writer
from harness.errors import Refused

STALE_S = 60.0
"""An engine on another host counts as dead after so many seconds without a heartbeat."""


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
        lease = Lease(campaign=campaign, host=this_host(), pid=pid, started=_started(pid) or 0.0,
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


def alive(lease: Lease, now: float | None = None) -> bool:
    """Return whether the lease's engine still runs.

    On this host the process is looked up. On another host only the heartbeat shows it, so a death
    goes unnoticed for STALE_S seconds.
    """
    if lease.pid == 0:
        return False
    if lease.host != this_host():
        return (time.time() if now is None else now) - lease.heartbeat <= STALE_S
    started = _started(lease.pid)
    return started is not None and started == lease.started


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


def _started(pid: int) -> float | None:
    """Return when a process started, seconds since boot; None if it has ended or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None if Path("/proc/self/stat").exists() else _exists(pid)
    fields = stat.rpartition(")")[2].split()  # the command may hold spaces and brackets
    if fields[0] in ("Z", "X"):
        return None
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _exists(pid: int) -> float | None:
    """Return 0.0 if a process exists, else None, on systems without /proc."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return 0.0
    except OSError:
        return None
    return 0.0
