"""Checks of kopt's surroundings: container, control group, Slurm job, login session, terminal."""

from __future__ import annotations

import locale
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from engine.doctor.tools import MachineCheck, output
from engine.journal.liveness import this_host
from harness.formats.quantities import GIB
from harness.formats.text import read_text as read

UNSHARE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"
LOGIND = ("busctl", "--system", "get-property", "org.freedesktop.login1",
          "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "KillUserProcesses")
ROOT = Path("/")
_GROUPS = ((re.compile(r"docker[-/][0-9a-f]{6,}"), "docker"), (re.compile("libpod-"), "podman"),
           (re.compile(r"\bcrio-"), "cri-o"), (re.compile("cri-containerd"), "containerd"),
           (re.compile(r"/lxc[./]"), "lxc"))
"""Control groups that runtimes create; not visible in a container with its own cgroup namespace."""
_STORES = (("/containerd/", "containerd"), ("/docker/", "docker"),
           ("/containers/storage/", "podman"))
"""Parts of the paths where runtimes keep root file systems."""


def checks() -> Iterator[MachineCheck]:
    """Yield the checks of this process's surroundings."""
    yield from (namespaces(), container(), slurm(), logind(), terminal())


def namespaces() -> MachineCheck:
    """Try to create a user namespace, by which kopt restricts the files that workers can see."""
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
                        "allow user namespaces: until then workers are confined by resource limits "
                        "and clean-up only, and a model's program may connect to any address")


def container() -> MachineCheck:
    """Look for a container and for limits on cores, memory and processes."""
    names = containers()
    facts = [f"in a container ({', '.join(names)})"] if names else []
    facts += filter(None, (_cpu_limit(), _memory_limit(), _process_limit()))
    return MachineCheck("container", "note" if facts else "ok",
                        ", ".join(facts) or "none, and no control-group limits",
                        "keep the workspace on a volume: a campaign ends with the container"
                        if names else "")


def slurm() -> MachineCheck:
    """Look for a Slurm job and the time that it has left."""
    job, end = os.environ.get("SLURM_JOB_ID", ""), job_end()
    if not job:
        return MachineCheck("slurm", "ok", "not in a job")
    left = "time left unknown" if end is None else \
        f"{max(0.0, (end - time.time()) / 60):.0f} min left"
    return MachineCheck("slurm", "warn", f"job {job}, {left}", (
        "a campaign stops before the job's end" if end else "a campaign ends with the job")
        + "; kopt resume in the next job continues it")


def job_end() -> float | None:
    """Return when this process's Slurm job ends, seconds since the epoch; None if unknown.

    An end in the past is unknown: the terminal has kept the variables of an earlier job.
    """
    job, end = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_END_TIME", "")
    answer = output("squeue", "--noheader", "--job", job, "--format", "%e") if job else ""
    try:
        ends_at = datetime.fromisoformat((answer or "").strip()).timestamp()
    except ValueError:  # no squeue, or a job without a limit
        ends_at = float(end) if end.isascii() and end.isdigit() else 0.0
    return ends_at if job and ends_at > time.time() else None


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


def _kills_by_file(root: Path = Path("/")) -> bool:
    """Return what logind's files say, read in its own order: the last assignment wins.

    Of files of one name in several folders the last folder's counts (man logind.conf).
    """
    by_name: dict[str, Path] = {}
    for folder in ("usr/lib/systemd", "run/systemd", "etc/systemd"):
        by_name |= {file.name: file for file in (root / folder).glob("logind.conf.d/*.conf")}
    kills = False
    for file in (root / "etc/systemd/logind.conf", *(by_name[name] for name in sorted(by_name))):
        for value in re.findall(r"^\s*KillUserProcesses\s*=\s*(\w+)", read(file), re.MULTILINE):
            kills = value.lower() in ("yes", "true", "1", "on")
    return kills


def _cpu_limit() -> str:
    if fields := read(Path("/sys/fs/cgroup/cpu.max")).split():
        quota, period = fields[0], fields[-1]
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


def containers(root: Path = ROOT) -> tuple[str, ...]:
    """Return the container systems around this process: an orchestrator, then a runtime."""
    groups = read(root / "proc/self/cgroup")
    in_kubernetes = "KUBERNETES_SERVICE_HOST" in os.environ or "kubepods" in groups
    runtime = _marked(root) or _enroot(root) or [
        name for pattern, name in _GROUPS if pattern.search(groups)][:1] or _mounted(root)
    names = ["kubernetes", *runtime] if in_kubernetes else runtime
    return tuple(dict.fromkeys(names or _declared(root)))


def _marked(root: Path) -> list[str]:
    """Look for files that runtimes create and variables that they set."""
    environment = root / "run/.containerenv"
    if environment.exists():
        engine = re.search(r'^engine="([A-Za-z-]*[A-Za-z])', read(environment), re.MULTILINE)
        return [engine[1] if engine else "podman"]
    if (root / ".dockerenv").exists():
        return ["docker"]
    for name in ("apptainer", "singularity"):  # apptainer sets both variables
        if any(f"{name.upper()}_{what}" in os.environ for what in ("CONTAINER", "NAME")):
            return [name]
    return ["singularity"] if (root / ".singularity.d").exists() else []


def _enroot(root: Path) -> list[str]:
    """Look for enroot's mount /.lock; if pyxis made it, its source has a folder pyxis_..."""
    mounts = _mounts(root)
    if "/.lock" not in mounts:
        return []
    return ["enroot", "pyxis"] if "pyxis_" in mounts["/.lock"] else ["enroot"]


def _mounted(root: Path) -> list[str]:
    mount = _mounts(root).get("/", "")
    return [name for part, name in _STORES if part in mount][:1]


def _mounts(root: Path) -> dict[str, str]:
    """Return the line of mountinfo for each mount point."""
    lines = read(root / "proc/self/mountinfo").splitlines()
    return {fields[4]: line for line in lines if len(fields := line.split()) > 4}


def _declared(root: Path) -> list[str]:
    """Return the container manager's name, from the places that systemd defines for it."""
    name = os.environ.get("container")  # noqa: SIM112 (systemd's own name for it)
    name = name or read(root / "run/systemd/container").strip()
    return [name] if name else []
