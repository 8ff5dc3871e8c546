"""Check a manifest before a campaign runs: programs, scripts, files, shell syntax, networks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from engine.manifest import rules
from engine.manifest.benchmark_target import editable_globs
from engine.manifest.pool_schema import NETWORK_FIX
from engine.manifest.schema import Manifest
from harness.formats import shell_command
from harness.formats.text import words

_KEYWORDS = words("{ } then do else if while until !")
_OPERATORS = frozenset("();&|\n")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SCRIPT = re.compile(r"[\w./-]+\.(py|sh|c|cc|cpp|cu|h|hpp|hip)")
"""Matches words that name a source file. No other file is checked: a command may create it."""


def problems(manifest: Manifest) -> Iterator[str]:
    """Yield one line for each shell syntax error and each missing program or source file.

    A further line says that no file matches `edit`.
    """
    project = Path(manifest.project)
    folders = [str(Path(manifest.python or sys.executable).parent), os.environ.get("PATH", "")]
    path = manifest.env.get("PATH") or os.pathsep.join(filter(None, folders))
    may_be_built = bool(manifest.build_command or manifest.setup_command)
    for name, command in _commands(manifest):
        in_shell = shell_command.needs_shell(command)
        if in_shell and (fault := _syntax_fault(command)):
            yield f"{name}: shell syntax error: {fault}"
            continue
        for program, arguments in _programs(command):
            if "/" in program and not program.startswith("/"):
                if not may_be_built and not (project / program).exists():
                    yield f"{name}: there is no {program} in {project}"
            elif shutil.which(program, path=path) is None and \
                    not (in_shell and _is_shell_builtin(program)):
                yield f"{name}: there is no program {program!r}"
            for word in arguments:
                if _SCRIPT.fullmatch(word) and not (project / word).exists():
                    yield f"{name}: there is no {word} in {project}"
    if manifest.target.kind == "command" and not any(
            _has(project, glob) for glob in editable_globs(manifest)):
        yield f"edit: there is no {' or '.join(editable_globs(manifest))} in {project}"


def _has(project: Path, glob: str) -> bool:
    """Return whether a glob matches a file or folder; True for a glob that pathlib refuses."""
    try:
        return any(True for _ in project.glob(glob))
    except (ValueError, NotImplementedError):
        return True


def agent_problems(manifest: Manifest) -> Iterator[str]:
    """Yield one line for each thing that a coding agent or a model lacks on this machine."""
    for index, cli in enumerate(manifest.pool.cli):
        if cli.agent is not None:
            yield from (f"pool.cli[{index}]: {problem}" for problem in cli.agent.problems())
    for part, spec in rules.models(manifest.pool):
        if spec.missing_key:
            yield f"pool.{part}: {spec.missing_key}; set it where kopt starts"


def networks(manifest: Manifest) -> Iterator[str]:
    """Yield one line for each command of `pool.cli`: the hosts that it can reach.

    They hold on a machine where namespaces can limit its network.
    """
    for cli in manifest.pool.cli:
        reached = cli.providers(os.environ)
        yield f"{cli.name}: " + (
            "the whole network" if reached is None else
            f"only {', '.join(map(str, reached))}" if reached else
            "no network" if cli.network is False else f"no network; {NETWORK_FIX}")


def without_network(manifest: Manifest) -> Iterator[str]:
    """Yield one line for each command that has no network but does not say `network: false`."""
    for cli in manifest.pool.cli:
        if cli.network is None and cli.providers(os.environ) == ():
            yield f"the worker {cli.name!r} has no network; {NETWORK_FIX}"


def _commands(manifest: Manifest) -> Iterator[tuple[str, str]]:
    for field in manifest.__struct_fields__:
        if field.endswith("_command") and (command := getattr(manifest, field)):
            yield field, command
    for index, cli in enumerate(manifest.pool.cli):
        if cli.command:  # `agent_problems` checks the command of a template
            yield f"pool.cli[{index}].command", shell_command.fill(cli.command, {
                "python": sys.executable, "prompt": "/prompt", "worktree": "/worktree"})


def _programs(command: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each program that a command's text names, with its arguments.

    The list ends at a `cd`, and at a program whose name is known only when the command runs.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();&|\n")
    lexer.whitespace, lexer.commenters = " \t\r", "#"
    lexer.whitespace_split = True
    program, arguments = "", list[str]()
    try:
        tokens = [*lexer, ";"]
    except ValueError:
        return  # quotes within quotes, which only a shell reads
    for token in tokens:
        if token in _KEYWORDS or _OPERATORS.issuperset(token):
            if program == "cd":
                return  # what follows is relative to another folder
            if program:
                yield program, arguments
            program, arguments = "", []
        elif program:
            arguments.append(token)
        elif not _ASSIGNMENT.match(token):
            if set("$`<>*?") & set(token):
                return
            program = token


def _is_shell_builtin(program: str) -> bool:
    done = subprocess.run([shell_command.SHELL, "-c", 'command -v -- "$1"', "sh", program],
                          capture_output=True, check=False, env={"PATH": ""})
    return done.returncode == 0


def _syntax_fault(command: str) -> str:
    done = subprocess.run([shell_command.SHELL, "-n", "-c", command], capture_output=True,
                          text=True, check=False, timeout=10)
    lines = done.stderr.strip().splitlines()
    return lines[-1].rpartition("sh: ")[2] if done.returncode and lines else ""
