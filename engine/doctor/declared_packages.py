"""The packages that kopt declares, and which of them cannot be imported.

Standard library only: the command line uses this module to explain why another import failed.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
MODULES = {"gitpython": "git", "mini-swe-agent": "minisweagent", "nvidia-ml-py": "pynvml",
           "pyyaml": "yaml"}
"""Modules whose name differs from their package's."""
IMPORT_S = 60.0
MARK = "kopt-import:"
IMPORT_ALL = f"""
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        error = ""
    except BaseException as failure:
        error = f"{{type(failure).__name__}}: {{failure}}".splitlines()[0]
    print("{MARK}" + error, flush=True)
"""


class DeclaredPackage(NamedTuple):
    """A declared package: its name, its version range, and the module that it installs."""

    name: str
    specifier: str
    module: str

    @property
    def fix(self) -> str:
        """Return the command that installs the package."""
        return f"{sys.executable} -m pip install '{self.name}{self.specifier}'"


def declared(extra: str = "") -> tuple[DeclaredPackage, ...]:
    """Return the packages that kopt always needs, or those that one of its extras needs.

    They are read from the source tree if there is one, because an editable install does not update
    the installed package's declaration.
    """
    lines = _declared(extra) if PYPROJECT.is_file() else _installed(extra)
    return tuple(map(_parse, lines))


def import_errors(packages: Sequence[DeclaredPackage]) -> dict[str, str]:
    """Import each package in another process; return the errors by package name.

    An import that ends the process is an error of that package: the others are still tried.
    """
    errors: dict[str, str] = {}
    rest = list(packages)
    while rest:
        results, ending = _import([package.module for package in rest])
        for package, error in zip(rest, results, strict=False):
            if error:
                errors[package.name] = describe(package, error)
        if len(results) < len(rest):
            errors[rest[len(results)].name] = f"its import {ending}"
        rest = rest[len(results) + 1:]
    return errors


def describe(package: DeclaredPackage, error: str) -> str:
    """Return an import error as the rest of a sentence that begins with the package."""
    missing = f"No module named '{package.module}'"
    return "is not installed" if missing in error else f"cannot be imported: {error}"


def culprit(error: ImportError) -> DeclaredPackage | None:
    """Return the declared package that an import error comes from, None if there is none."""
    by_module = {package.module: package
                 for extra in ("", "tui", "torch", "agent", "mcp") for package in declared(extra)}
    running = [str(frame.f_globals.get("__name__", "")).partition(".")[0]
               for frame, _ in traceback.walk_tb(error.__traceback__)]
    modules = [(error.name or "").partition(".")[0], *reversed(running)]
    return next((by_module[module] for module in modules if module in by_module), None)


def _declared(extra: str) -> list[str]:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    lines: list[str] = project["optional-dependencies"][extra] if extra else \
        project["dependencies"]
    return lines


def _installed(extra: str) -> list[str]:
    try:
        lines = importlib.metadata.requires("kopt") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    marked = [(line.partition(";")[0], re.search(r"extra == ['\"](\w+)['\"]", line))
              for line in lines]
    return [line for line, mark in marked if (mark[1] if mark else "") == extra]


def _parse(line: str) -> DeclaredPackage:
    name, specifier = re.match(r"\s*([\w.-]+)(.*)", line).groups()  # type: ignore[union-attr]
    module = name.lower().replace("-", "_")
    return DeclaredPackage(name, specifier.strip(), MODULES.get(name.lower(), module))


def _import(modules: Iterable[str]) -> tuple[list[str], str]:
    """Return an error text per module tried, "" for none, and how the process ended."""
    env = {**os.environ, "GIT_PYTHON_REFRESH": "quiet"}  # another check reports a missing git
    try:
        done = subprocess.run([sys.executable, "-P", "-c", IMPORT_ALL, *modules], text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, errors="replace",
                              timeout=IMPORT_S, check=False, env=env)
        printed, ending = done.stdout, f"ends the process (exit code {done.returncode})"
    except subprocess.TimeoutExpired as error:
        printed = (error.stdout or b"").decode(errors="replace")
        ending = f"takes more than {IMPORT_S:.0f} s"
    return [line.removeprefix(MARK) for line in printed.splitlines() if line.startswith(MARK)], \
        ending
