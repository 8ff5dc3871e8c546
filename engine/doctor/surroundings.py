"""Checks of what kopt runs in: container, control group, Slurm job, login session, terminal."""

from __future__ import annotations

import locale
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from engine.doctor import containers
from engine.doctor.machine_check import MachineCheck, output, read
from engine.journal.liveness import this_host
from harness.formats.quantities import GIB

UNSHARE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"
LOGIND = ("busctl", "--system", "get-property", "org.freedesktop.login1",
          "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "KillUserProcesses")


def checks() -> Iterator[MachineCheck]:
    """Yield one check per surrounding of this process."""
    yield namespaces()
    yield container()
    yield slurm()
    yield logind()
    yield terminal()


def namespaces() -> MachineCheck:
    """Try to create a user namespace, which confines a worker to its part of the file system."""
    try:
        process = subprocess.run([sys.executable, "-I", "-c", UNSHARE], check=False, timeout=10,
                              capture_output=True)
        allowed = process.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        allowed = False
    bubblewrap = "bubblewrap installed" if shutil.which("bwrap") else "no bubblewrap"
    if allowed:
        return MachineCheck("user namespaces", "ok", f"allowed, {bubblewrap}")
    return MachineCheck("user namespaces", "note", f"not allowed, {bubblewrap}",
                        "workers are confined by resource limits and clean-up only")


def container() -> MachineCheck:
    """Look for a container and for limits on cores, memory and processes."""
    inside = containers.inside()
    facts = [f"in a container ({', '.join(inside)})"] if inside else []
    facts += filter(None, (_cpu_limit(), _memory_limit(), _process_limit()))
    return MachineCheck("container", "note" if facts else "ok",
                        ", ".join(facts) or "none, and no control-group limits",
                        "a campaign ends with the container; its results survive if the "
                        "workspace does" if inside else "")


def slurm() -> MachineCheck:
    """Look for a Slurm job and the time that it has left."""
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job:
        return MachineCheck("slurm", "ok", "not in a job")
    end = os.environ.get("SLURM_JOB_END_TIME", "")
    if end.isdigit():
        left = f"{max(0.0, (int(end) - time.time()) / 60):.0f} min left"
    else:
        answer = output("squeue", "--noheader", "--job", job, "--format", "%L")
        left = f"{answer.strip()} left" if answer else "time left unknown"
    return MachineCheck("slurm", "warn", f"job {job}, {left}",
                        "a campaign ends with the job; kopt run in the next job continues it")


def logind() -> MachineCheck:
    """Ask systemd-logind whether it kills a user's processes at logout."""
    name = "closed sessions"
    if not Path("/run/systemd/system").exists():
        return MachineCheck(name, "ok", "no systemd: campaigns outlive the session")
    answer = output(*LOGIND, timeout_s=3) if shutil.which("busctl") else None
    if answer is None:
        answer = "b true" if _kills_by_file() else "b false"
    if answer != "b true":
        return MachineCheck(name, "ok", "logind lets campaigns outlive the session")
    user = os.environ.get("USER") or str(os.getuid())
    if Path(f"/var/lib/systemd/linger/{user}").exists():
        return MachineCheck(name, "ok", "logind kills processes at logout, but not those of "
                            f"{user} (lingering)")
    return MachineCheck(name, "warn",
                        "logind kills a user's processes at logout (KillUserProcesses)",
                        f"loginctl enable-linger {user}")


def terminal() -> MachineCheck:
    """Check the terminal's size and encoding for the dashboard."""
    size = shutil.get_terminal_size((0, 0))
    facts = [os.environ.get("TERM") or "no TERM"]
    facts += [f"{size.columns}x{size.lines}"] if size.columns else []
    facts += [name for name, sign in (("tmux", "TMUX"), ("screen", "STY"), ("ssh", "SSH_TTY"),
                                      ("NO_COLOR", "NO_COLOR")) if os.environ.get(sign)]
    encoding = locale.getpreferredencoding(False)
    facts.append(encoding)
    if encoding.upper().replace("-", "") != "UTF8":
        return MachineCheck("terminal", "warn", ", ".join(facts),
                            "set LANG=C.UTF-8 to show signs and lines")
    if 0 < size.columns < 80 or 0 < size.lines < 24:
        return MachineCheck("terminal", "warn", ", ".join(facts),
                            "the dashboard needs at least 80x24")
    return MachineCheck("terminal", "ok", ", ".join([*facts, f"host {this_host().split(' ')[0]}"]))


def _kills_by_file() -> bool:
    """Read logind's configuration files in its own order: the last assignment wins."""
    files = [Path("/etc/systemd/logind.conf")]
    for folder in ("/usr/lib/systemd", "/run/systemd", "/etc/systemd"):
        files += sorted(Path(folder).glob("logind.conf.d/*.conf"))
    kills = False
    for file in files:
        for value in re.findall(r"^\s*KillUserProcesses\s*=\s*(\w+)", read(file), re.MULTILINE):
            kills = value.lower() in ("yes", "true", "1", "on")
    return kills


def _cpu_limit() -> str:
    if words := read(Path("/sys/fs/cgroup/cpu.max")).split():
        quota, period = words[0], words[-1]
    else:
        quota = read(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")).strip()
        period = read(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")).strip()
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return ""
    return f"{int(quota) / int(period):.1f} cores by quota"


def _memory_limit() -> str:
    for path in ("memory.max", "memory/memory.limit_in_bytes"):
        value = read(Path("/sys/fs/cgroup") / path).strip()
        if value.isdigit() and int(value) < 1 << 60:
            return f"{int(value) / GIB:.1f} GiB of memory"
    return ""


def _process_limit() -> str:
    value = read(Path("/sys/fs/cgroup/pids.max")).strip()
    return f"{value} processes" if value.isdigit() else ""
