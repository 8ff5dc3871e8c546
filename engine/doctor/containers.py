"""Detects the container that this process runs in, by the marks of each runtime."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from engine.doctor.machine_check import read

ROOT = Path("/")
_GROUPS = ((re.compile(r"docker[-/][0-9a-f]{6,}"), "docker"), (re.compile("libpod-"), "podman"),
           (re.compile(r"\bcrio-"), "cri-o"), (re.compile("cri-containerd"), "containerd"),
           (re.compile(r"/lxc[./]"), "lxc"))
"""Control groups that runtimes create; a container with its own cgroup namespace sees none."""
_STORES = (("/containerd/", "containerd"), ("/docker/", "docker"),
           ("/containers/storage/", "podman"))
"""Parts of the paths where runtimes keep root file systems."""


def inside(root: Path = ROOT) -> tuple[str, ...]:
    """Return what this process runs in, outermost first: an orchestrator, then a runtime."""
    names = list(dict.fromkeys((*_orchestrator(root), *_runtime(root))))
    return tuple(names or _declared(root))


def _orchestrator(root: Path) -> Iterator[str]:
    if "KUBERNETES_SERVICE_HOST" in os.environ or "kubepods" in read(root / "proc/self/cgroup"):
        yield "kubernetes"


def _runtime(root: Path) -> Iterator[str]:
    """Yield the first runtime that is detected."""
    for names in (_marked(root), _enroot(root), _grouped(root), _mounted(root)):
        if names:
            yield from names
            return


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
    """Look for the lock that enroot mounts into containers; pyxis has its name in the folder's."""
    mounts = _mounts(root)
    if "/.lock" not in mounts:
        return []
    return ["enroot", "pyxis"] if "pyxis_" in mounts["/.lock"] else ["enroot"]


def _grouped(root: Path) -> list[str]:
    groups = read(root / "proc/self/cgroup")
    return [name for pattern, name in _GROUPS if pattern.search(groups)][:1]


def _mounted(root: Path) -> list[str]:
    mount = _mounts(root).get("/", "")
    return [name for part, name in _STORES if part in mount][:1]


def _mounts(root: Path) -> dict[str, str]:
    """Return the line of mountinfo for each mount point."""
    lines = read(root / "proc/self/mountinfo").splitlines()
    return {words[4]: line for line in lines if len(words := line.split()) > 4}


def _declared(root: Path) -> list[str]:
    """Return the container manager's name in the places that systemd defines for it."""
    name = os.environ.get("container")  # noqa: SIM112 (systemd's own name for it)
    name = name or read(root / "run/systemd/container").strip()
    return [name] if name else []
