"""Programs and packages: Python, git, a compiler that works, torch and Triton."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from engine.doctor.machine_check import MachineCheck, first, output

GIT_NEEDED = (2, 32)
COMPILERS = ("cc", "gcc", "clang")
LOAD = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).answer() != 42)"


def checks() -> Iterator[MachineCheck]:
    """Yield what there is of programs and packages."""
    yield python()
    yield git()
    yield compiler()
    yield packages()


def python() -> MachineCheck:
    inside = "in a virtual environment" if sys.prefix != sys.base_prefix else "not in a venv"
    found = f"{platform.python_version()}, {sys.executable}, {inside}"
    return MachineCheck("python", "ok", found)


def git() -> MachineCheck:
    printed = output("git", "--version")
    version = re.search(r"(\d+)\.(\d+)", printed or "")
    if printed is None or version is None:
        return MachineCheck("git", "missing", "not installed", "install git 2.32 or newer")
    if (int(version[1]), int(version[2])) < GIT_NEEDED:
        return MachineCheck("git", "missing", printed, "kopt needs git 2.32 or newer")
    return MachineCheck("git", "ok", printed)


def compiler() -> MachineCheck:
    """Compile, load and call a function; a temporary folder mounted noexec shows here."""
    there = first([(name, "--version") for name in COMPILERS])
    if there is None:
        return MachineCheck("compiler", "missing", "no C compiler (cc, gcc or clang)",
                     "install one, for example apt install gcc")
    name, printed = there
    version = (printed.splitlines() or [name])[0]
    with tempfile.TemporaryDirectory(prefix="kopt-doctor-") as folder:
        library = Path(folder) / "answer.so"
        argv = [name, "-O3", "-march=native", "-shared", "-fPIC", "-x", "c", "-", "-o",
                str(library)]
        done = subprocess.run(argv, input="int answer(void) { return 42; }", text=True,
                              capture_output=True, check=False, timeout=60)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["it says nothing"])[0]
            return MachineCheck("compiler", "missing", f"{version}: {why}",
                         "install the C library's headers, for example apt install libc6-dev")
        if output(sys.executable, "-c", LOAD, str(library)) is None:
            return MachineCheck("compiler", "missing", f"{version}: what it makes does not load",
                         f"is {tempfile.gettempdir()} mounted noexec? set TMPDIR elsewhere")
    return MachineCheck("compiler", "ok", version)


def packages() -> MachineCheck:
    """Look at versions only: importing torch takes seconds and hundreds of megabytes."""
    versions = {name: _version(name) for name in ("torch", "triton", "textual")}
    found = ", ".join(f"{name} {version or '-'}" for name, version in versions.items())
    if not (versions["torch"] and versions["triton"]):
        return MachineCheck(
            "packages", "note", found, "Triton kernels need pip install 'kopt[torch]'"
        )
    if not versions["textual"]:
        return MachineCheck(
            "packages", "note", found, "the dashboard needs pip install 'kopt[tui]'"
        )
    return MachineCheck("packages", "ok", found)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
