"""The host: a process in a session of its own that runs the engine thread.

It survives a closed terminal and a dropped connection. It adopts orphaned processes, so that no
process of a killed supervisor outlives the host.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import engine
from engine.campaign import handover
from engine.journal import liveness
from engine.journal.read import Reader
from engine.run.engine import Engine
from harness.errors import EnvironmentFault, Refused

PR_SET_CHILD_SUBREAPER = 36
START_S = 20.0
LEAST_FREE_KIB = 1024
"""With less free space the journal and the logs of an engine may not be written."""


def spawn(workspace: Path, campaign: str, *, decide_only: bool = False) -> int:
    """Start a host for a campaign and return its pid once it holds the lease.

    Raises EnvironmentFault if it ends before that (its output is in logs/host.log) or has no lease
    after START_S, Refused if another engine runs the campaign.
    """
    with contextlib.closing(Reader(workspace)) as reader:
        row = reader.campaign(campaign)
        if row is None:
            raise EnvironmentFault(f"no campaign {campaign!r}", where=str(workspace))
        handover.check_clone(row)
        before = reader.lease(campaign)
        log = Path(row.path) / "logs" / "host.log"
        log_begin = log.stat().st_size if log.exists() else 0
        process = _start(workspace, campaign, log, decide_only)
        epoch = before.epoch if before is not None else 0
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            ended = process.poll() is not None  # first: it may end while the lease is read
            lease = reader.lease(campaign)
            owned = lease is not None and lease.epoch > epoch
            if process.returncode == 0 or (owned and lease and lease.pid == process.pid):
                return process.pid
            if ended and owned and lease and liveness.alive(lease):
                raise Refused(f"{campaign} is already running in process {lease.pid}",
                              fix="kopt attach shows it")
            if ended:
                if line := _last_line(log, log_begin):
                    raise EnvironmentFault(line, where=campaign)
                free_kib = shutil.disk_usage(log.parent).free >> 10
                raise EnvironmentFault(
                    f"the engine ended at once and wrote nothing to {log}, where {free_kib} KiB "
                    "are free", where=campaign,
                    fix="free some space or choose another --workspace" if free_kib < LEAST_FREE_KIB
                    else f"kopt resume {campaign}; if it ends again, look for it in dmesg")
            time.sleep(0.02)
        raise EnvironmentFault(f"the host did not start within {START_S:g} s", where=str(log))


def _last_line(log: Path, begin: int) -> str:
    """Return the last line of a host's log after its first `begin` bytes."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("kopt: ") if lines else ""


def _start(workspace: Path, campaign: str, log: Path,
           decide_only: bool) -> subprocess.Popen[bytes]:
    root = str(Path(engine.__file__).resolve().parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    argv = [sys.executable, "-m", "engine.run.host", str(workspace.resolve()), campaign]
    with log.open("ab") as file:
        return subprocess.Popen(
            argv + (["--decide"] if decide_only else []), stdin=subprocess.DEVNULL, stdout=file,
            stderr=file, start_new_session=True, cwd="/",
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)})


def owner(workspace: Path, campaign: str) -> int | None:
    """Return the pid of the live engine that owns a campaign, None if there is none."""
    with contextlib.closing(Reader(workspace)) as reader:
        lease = reader.lease(campaign)
    return lease.pid if lease is not None and liveness.alive(lease) else None


def main() -> int:
    """Run one campaign to its end. SIGTERM and SIGINT end it in order, SIGHUP is ignored."""
    workspace, campaign, *rest = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    runner = Engine(Path(workspace), campaign, decide_only="--decide" in rest)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: runner.stop())
    runner.start()
    while runner.is_alive():
        runner.join(0.5)
    if runner.error is not None:
        print(f"kopt: {runner.error}", file=sys.stderr)
        return runner.error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
