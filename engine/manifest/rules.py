"""What a manifest's types cannot say: globs, commands, names, and fields that go together."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import PurePosixPath

from engine.manifest.benchmark_target import command_target, end_to_end
from engine.manifest.schema import Cli, Manifest
from harness.benchmark.spec import metric_units
from harness.benchmark.spec.validate import faults
from harness.errors import InputError
from harness.formats.yaml_decode import suggest
from harness.formats.yaml_document import Document, Key

_OWN = {"command": "benchmark_command", "quick_command": "quick_command",
        "build_command": "build_command"}
BACKENDS = ("search", "split", "rewrite-template", "inbox", "cli")
PLACEHOLDERS = ("prompt", "worktree", "python")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BRANCH_FAULT = re.compile(r"\.\.|[\x00-\x20~^:?*\[\\\x7f]|@\{|//|^[-/]|[/.]$|\.lock$|/\.|^\.")

Fault = tuple[Key, str, str]
"""Where, what, and what to do about it."""


def check(manifest: Manifest, document: Document) -> None:
    """Raise InputError for the first broken rule, with its line."""
    rules: tuple[Callable[[Manifest], Iterator[Fault]], ...] = (
        _names, _shapes, _globs, _commands, _env, _pool, _waits)
    for rule in rules:
        for key, what, fix in rule(manifest):
            raise InputError(what, where=document.at(key), fix=fix)


def _names(manifest: Manifest) -> Iterator[Fault]:
    for key in ("target_op", "target_backend", "target_lang", "target_gpu"):
        value = getattr(manifest, key)
        if value and not _SLUG.fullmatch(value):
            yield (key,), f"{key}: {value!r} cannot be part of a folder's name", \
                "use letters, digits, '.', '_' and '-', at most 64"
    if manifest.git_branch not in ("auto", "none") and _BRANCH_FAULT.search(manifest.git_branch):
        yield ("git_branch",), f"git_branch: {manifest.git_branch!r} is no branch name", \
            "auto, none, or a name as git allows it"
    if manifest.created and not _is_minute(manifest.created):
        yield ("created",), f"created: {manifest.created!r} is no time", \
            "write YYYY-MM-DD HH:MM"


def _shapes(manifest: Manifest) -> Iterator[Fault]:
    for key in ("target_shapes", "representative_shapes"):
        value = getattr(manifest, key)
        if isinstance(value, str) and value != "all":
            yield (key,), f"{key}: expected all or a list of shapes, got {value!r}", ""
        elif isinstance(value, tuple) and not value:
            yield (key,), f"{key}: the list is empty", "write all, or leave the key out"


def _globs(manifest: Manifest) -> Iterator[Fault]:
    for field in ("edit", "frozen", "extract"):
        for index, glob in enumerate(getattr(manifest, field)):
            if fault := _glob_fault(glob):
                yield (field, index), f"{field}: the glob {glob!r} {fault}", \
                    "globs are relative to the project, like src/*.c"
    for index, glob in enumerate(manifest.edit):
        if glob in manifest.frozen:
            yield ("edit", index), f"edit: {glob!r} is frozen as well", "it can only be one"
    if manifest.target.kind == "kernel" and (fault := _glob_fault(manifest.target.task)):
        yield ("target", "task"), f"target.task: {manifest.target.task!r} {fault}", \
            "it is a path inside the project"


def _glob_fault(glob: str) -> str:
    if not glob.strip():
        return "is empty"
    if glob.startswith(("/", "~")):
        return "is not relative"
    if ".." in PurePosixPath(glob).parts:
        return "leaves the project"
    return "has a '[' without its ']'" if re.search(r"\[[^\]]*$", glob) else ""


def _commands(manifest: Manifest) -> Iterator[Fault]:
    for field in manifest.__struct_fields__:
        if field.endswith("_command") and (fault := _command_fault(getattr(manifest, field))):
            yield (field,), f"{field}: {fault}", ""
    yield from _end_to_end(manifest)
    if manifest.target.kind == "command":
        for key, value in (("benchmark_command", manifest.benchmark_command),
                           ("target.csv", manifest.target.csv),
                           ("target.check", manifest.target.check),
                           ("target.metrics", manifest.target.metrics)):
            if not value:
                yield ("target", "kind"), f"a command target needs the key {key!r}", ""
                return
        yield from _reported(manifest)


def _end_to_end(manifest: Manifest) -> Iterator[Fault]:
    metric = end_to_end(manifest).metric
    if metric is None:
        return
    try:
        metric_units.resolve(metric)
    except ValueError as error:
        yield (
            ("e2e_metric",),
            f"e2e_metric: {metric.name!r}: {error}",
            metric_units.metric_help(metric),
        )


def _reported(manifest: Manifest) -> Iterator[Fault]:
    """Yield what the harness would refuse, under the manifest's own names."""
    for key, what, fix in faults(command_target(manifest)):
        own = _OWN.get(str(key[0]))
        at = (own,) if own else ("target", *key)
        label = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at)
        yield at, f"{label.removeprefix('.')}: {what}", fix


def _command_fault(command: str) -> str:
    try:
        shlex.split(command)
    except ValueError as error:
        return f"the command is not well quoted: {str(error).lower()}"
    return ""


def _env(manifest: Manifest) -> Iterator[Fault]:
    for name in manifest.env:
        if not _VARIABLE.fullmatch(name):
            yield ("env", name), f"env: {name!r} is no variable name", ""
    for index, cli in enumerate(manifest.pool.cli):
        for place, name in enumerate(cli.env):
            if not _VARIABLE.fullmatch(name):
                yield ("pool", "cli", index, "env", place), \
                    f"pool.cli[{index}].env: {name!r} is no variable name", \
                    "list names only; values come from kopt's own environment"


def _pool(manifest: Manifest) -> Iterator[Fault]:
    pool = manifest.pool
    if not pool.backends:
        yield ("pool", "backends"), "pool.backends: the list is empty", \
            f"known: {', '.join(BACKENDS)}"
    for index, name in enumerate(pool.backends):
        if name not in BACKENDS:
            yield ("pool", "backends", index), f"pool.backends: unknown backend {name!r}", \
                suggest(name, BACKENDS)
        if name in pool.backends[:index]:
            yield ("pool", "backends", index), f"pool.backends: {name!r} is given twice", ""
    if pool.cli and "cli" not in pool.backends:
        yield ("pool", "cli"), "pool.cli is given but pool.backends leaves out 'cli'", \
            "add cli to pool.backends"
    if "cli" in pool.backends and not pool.cli:
        yield ("pool", "backends"), "pool.backends has 'cli' but pool.cli names no command", \
            "add a pool.cli entry with name and command"
    for index, cli in enumerate(pool.cli):
        yield from _cli(cli, ("pool", "cli", index), {one.name for one in pool.cli[:index]})


def _cli(cli: Cli, key: Key, taken: set[str]) -> Iterator[Fault]:
    label = f"pool.cli[{key[-1]}]"
    if not _SLUG.fullmatch(cli.name):
        yield (*key, "name"), f"{label}.name: {cli.name!r} is no plain name", ""
    if cli.name in taken:
        yield (*key, "name"), f"{label}.name: {cli.name!r} is given twice", ""
    try:
        named = [name for _, name, _, _ in string.Formatter().parse(cli.command)
                 if name is not None]
    except ValueError as error:
        yield (*key, "command"), f"{label}.command: {str(error).lower()}", \
            "write {{ and }} for braces that are meant"
        return
    for name in named:
        if name not in PLACEHOLDERS:
            yield (*key, "command"), f"{label}.command: unknown placeholder {{{name}}}", \
                suggest(name, PLACEHOLDERS)
    if "prompt" not in named:
        yield (*key, "command"), f"{label}.command: the task never reaches it", \
            "use {prompt}, the path of the task's file"
    if fault := _command_fault(cli.command):
        yield (*key, "command"), f"{label}.command: {fault}", ""


def _waits(manifest: Manifest) -> Iterator[Fault]:
    if manifest.gpu.retry_s > manifest.gpu.limit_s:
        yield ("gpu", "retry_s"), "gpu.retry_s is longer than gpu.limit_s", ""


def _is_minute(text: str) -> bool:
    try:
        datetime.strptime(text, "%Y-%m-%d %H:%M")
    except ValueError:
        return False
    return True
