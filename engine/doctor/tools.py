"""Programs and packages that kopt needs: Python, git, a working compiler, dependencies."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from engine.coding_agents import agent_templates
from engine.doctor import declared_packages
from engine.doctor.declared_packages import DeclaredPackage
from harness.compile import c_compiler
from harness.errors import EnvironmentFault

Status = Literal["ok", "note", "warn", "missing"]
TOOL_S = 5.0


class MachineCheck(msgspec.Struct, frozen=True):
    """A check's result; the status `missing` means that kopt cannot work until `fix` is done."""

    name: str
    status: Status
    found: str
    fix: str = ""


def output(*argv: str, timeout_s: float = TOOL_S) -> str | None:
    """Return what a program prints, None if it is missing, fails or takes too long."""
    try:
        done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, text=True,
                              errors="replace", timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


GIT_NEEDED = (2, 32)
LOAD = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).answer() != 42)"


def checks() -> Iterator[MachineCheck]:
    """Yield one check per program and package."""
    yield from (python(), git(), compiler(), *packages(), dashboard(), torch(), coding_agents())


def coding_agents() -> MachineCheck:
    """Name the known coding agents that are installed."""
    known = agent_templates.names()
    installed = [name for name in known if shutil.which(agent_templates.templates()[name].program)]
    return MachineCheck(
        "coding agents", "ok" if installed else "note", ", ".join(installed) or "none is installed",
        "" if installed else f"kopt new --agent NAME takes {', '.join(known)}, or any command")


def python() -> MachineCheck:
    """Report the interpreter, which is new enough: kopt does not start with an older one."""
    inside = "in a virtual environment" if sys.prefix != sys.base_prefix else \
        "not in a virtual environment"
    return MachineCheck("python", "ok", f"{platform.python_version()}, {sys.executable}, {inside}")


def git() -> MachineCheck:
    """Check that git is installed and new enough for worktrees and isolated configuration."""
    printed = output("git", "--version")
    version = re.search(r"(\d+)\.(\d+)", printed or "")
    if printed is None or version is None:
        return MachineCheck("git", "missing", "not installed", "install git 2.32 or newer")
    if (int(version[1]), int(version[2])) < GIT_NEEDED:
        return MachineCheck("git", "missing", printed, "kopt needs git 2.32 or newer")
    return MachineCheck("git", "ok", printed)


def compiler() -> MachineCheck:
    """Compile, load and call a function; this also detects a TMPDIR that is mounted noexec."""
    try:
        path = c_compiler.compiler()
    except EnvironmentFault as fault:
        return MachineCheck("compiler", "missing", fault.what, fault.fix)
    if (printed := output(path, "--version")) is None:
        return MachineCheck("compiler", "missing", f"{path} does not run", "install gcc or clang")
    version = (printed.splitlines() or [path])[0]
    with tempfile.TemporaryDirectory(prefix="kopt-doctor-") as folder:
        library = Path(folder) / "answer.so"
        argv = [path, "-O3", "-march=native", "-shared", "-fPIC", "-x", "c", "-", "-o",
                str(library)]
        done = subprocess.run(argv, input="int answer(void) { return 42; }", text=True,
                              capture_output=True, check=False, timeout=60)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no error message"])[0]
            return MachineCheck("compiler", "missing", f"{version}: {why}",
                                "install the C library's development files, for example "
                                "apt install libc6-dev")
        if output(sys.executable, "-c", LOAD, str(library)) is None:
            return MachineCheck("compiler", "missing",
                                f"{version}: the library that it built does not load",
                                f"is {tempfile.gettempdir()} mounted noexec? set TMPDIR to "
                                "another folder")
    return MachineCheck("compiler", "ok", version)


def packages() -> Iterator[MachineCheck]:
    """Import every dependency in another process: even an installed one may be broken."""
    declared = declared_packages.declared()
    errors = declared_packages.import_errors(declared)
    working = _versions([package for package in declared if package.name not in errors])
    yield MachineCheck("packages", "ok", working or "none can be imported")
    for package in declared:
        if package.name in errors:
            yield MachineCheck(package.name, "missing", errors[package.name], package.fix)


def dashboard() -> MachineCheck:
    """Import the packages that only the dashboard needs."""
    declared = declared_packages.declared("tui")
    return _optional("dashboard", declared, declared_packages.import_errors(declared),
                     "the dashboard needs")


def torch() -> MachineCheck:
    """Look up the packages' versions: importing torch takes seconds and hundreds of megabytes."""
    declared = declared_packages.declared("torch")
    absent = {package.name: "is not installed" for package in declared
              if not _version(package.name)}
    return _optional("torch", declared, absent, "Triton kernels need")


def _optional(name: str, declared: Sequence[DeclaredPackage], errors: Mapping[str, str],
              needed: str) -> MachineCheck:
    """Return the check of packages that kopt needs for some work only."""
    if not errors:
        return MachineCheck(name, "ok", _versions(declared))
    broken = next(package for package in declared if package.name in errors)
    return MachineCheck(name, "note", "; ".join(f"{key} {what}" for key, what in errors.items()),
                        f"{needed} {broken.fix}")


def _versions(declared: Sequence[DeclaredPackage]) -> str:
    return ", ".join(f"{package.name} {_version(package.name)}" for package in declared)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
