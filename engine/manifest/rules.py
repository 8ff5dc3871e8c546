"""Check what a manifest's types cannot express: globs, commands, names, related fields.

Also list the fields that a campaign does not act on, so that its start can report them.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import PurePosixPath

from engine.coding_agents import provider_address
from engine.coding_agents.agent_templates import templates
from engine.manifest import goal
from engine.manifest.benchmark_target import command_target, end_to_end, primary_metrics
from engine.manifest.pool_schema import CliSpec, ModelSpec, PoolSpec, RequestSpec
from engine.manifest.schema import Manifest, publishes_commits
from engine.routing.translation_pairs import LANGUAGES
from harness.benchmark.spec.command_target import CommandTarget
from harness.benchmark.spec.validate import FieldFault, faults
from harness.errors import InputError
from harness.formats import shell_command
from harness.formats.text import suggest
from harness.formats.yaml_document import Document
from harness.formats.yaml_values import Key
from harness.tasks.target import Target

_KEYS_OF_COMMAND = {"command": "benchmark_command", "quick_command": "quick_command",
                    "setup_command": "setup_command", "build_command": "build_command"}
_KEYS_OF_PROGRAM = {"command": "e2e_command", "metric": "e2e_metric",
                    "timeout_s": "e2e_timeout_s", "setup_command": "setup_command",
                    "build_command": "build_command"}
"""Manifest keys by the harness's fields of a benchmark and of the whole program; the keys of other
fields are in `target`."""
BACKENDS = ("search", "split", "transform", "rewrite-template", "inbox", "replay", "cli",
            "agent")
COMMAND_FIELDS = ("target_shapes", "representative_shapes", "setup_command", "build_command",
                  "benchmark_command", "quick_command")
"""Fields of command targets only: a kernel's task file has the shapes; the harness builds it."""
PLACEHOLDERS = ("prompt", "worktree", "python")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY_IN_URL = re.compile(r"//[^/?#]*@|[?&][^=&]*(?:key|token|secret|passw)[^=&]*=", re.IGNORECASE)
_KEY = re.compile(r"\b(?:sk-[\w-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|AIza[\w-]{16,}"
                  r"|hf_\w{16,}|xai-\w{16,}|gsk_\w{16,})")
"""Keys of providers, by how they begin."""
NO_KEYS = "every campaign keeps a copy of its manifest: put the key into a variable, and name that"
_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BRANCH_FAULT = re.compile(r"\.\.|[\x00-\x20~^:?*\[\\\x7f]|@\{|//|^[-/]|[/.]$|\.lock$|/\.|^\.")


def check_rules(manifest: Manifest, document: Document) -> None:
    """Raise InputError for the first broken rule, with its line."""
    rules: tuple[Callable[[Manifest], Iterator[FieldFault]], ...] = (
        _names, _shapes, _globs, _commands, _env, _pool, _gpu)
    for rule in rules:
        for key, what, fix in rule(manifest):
            raise InputError(what, where=document.at(key), fix=fix)


def ignored_fields(manifest: Manifest,
                   task: Target | CommandTarget | None = None) -> tuple[str, ...]:
    """Return the names of the fields that are set and have no effect."""
    default, is_command = Manifest(target_op="-"), manifest.target.kind == "command"
    task = command_target(manifest) if is_command and task is None else task
    unused = list(() if is_command else COMMAND_FIELDS)
    if is_command and not (manifest.quick_command
                           and manifest.representative_shapes == manifest.target_shapes):
        unused.append("target_shapes")
    if not (is_command and primary_metrics(manifest)):
        unused.append("primary_metric")
    if not publishes_commits(manifest) and manifest.git_branch != "none" \
            and not manifest.git_branch.startswith("optimize/"):
        unused.append("git_branch")
    target = goal.parse_goal(manifest.performance_target or "")
    if target is None or (task is not None and not goal.is_checkable(target, task)):
        unused.append("performance_target")
    return tuple(name for name in unused if getattr(manifest, name) != getattr(default, name))


def _names(manifest: Manifest) -> Iterator[FieldFault]:
    for key in ("target_op", "target_backend", "target_lang", "target_gpu"):
        value = getattr(manifest, key)
        if value and not _SLUG.fullmatch(value):
            yield (key,), f"{key}: {value!r} cannot be part of a folder's name", \
                "use letters, digits, '.', '_' and '-', at most 64"
    if manifest.git_branch not in ("auto", "none") and _BRANCH_FAULT.search(manifest.git_branch):
        yield ("git_branch",), f"git_branch: {manifest.git_branch!r} is not a branch name", \
            "auto, none, or a name as git allows it"
    if manifest.created and not _is_minute(manifest.created):
        yield ("created",), f"created: {manifest.created!r} is not a time", \
            "write YYYY-MM-DD HH:MM"


def _shapes(manifest: Manifest) -> Iterator[FieldFault]:
    for key in ("target_shapes", "representative_shapes"):
        value = getattr(manifest, key)
        if isinstance(value, str) and value != "all":
            yield (key,), f"{key}: expected all or a list of shapes, got {value!r}", ""
        elif isinstance(value, tuple) and not value:
            yield (key,), f"{key}: the list is empty", "write all, or leave the key out"


def _globs(manifest: Manifest) -> Iterator[FieldFault]:
    for field in ("edit", "frozen", "extract"):
        for index, glob in enumerate(getattr(manifest, field)):
            if problem := _glob_fault(glob):
                yield (field, index), f"{field}: the glob {glob!r} {problem}", \
                    "globs are relative to the project, like src/*.c"
    for index, glob in enumerate(manifest.edit):
        if glob in manifest.frozen:
            yield ("edit", index), f"edit: {glob!r} is also in frozen", \
                "remove it from one of the two"
    if manifest.target.kind == "kernel" and (problem := _glob_fault(manifest.target.task)):
        yield ("target", "task"), f"target.task: {manifest.target.task!r} {problem}", \
            "it is a path inside the project"


def _glob_fault(glob: str) -> str:
    if not glob.strip():
        return "is empty"
    if glob.startswith(("/", "~")):
        return "is not relative"
    if ".." in PurePosixPath(glob).parts:
        return "leaves the project"
    return "has a '[' without its ']'" if re.search(r"\[[^\]]*$", glob) else ""


def _commands(manifest: Manifest) -> Iterator[FieldFault]:
    for field in manifest.__struct_fields__:
        command = getattr(manifest, field)
        if field.endswith("_command") and command and (problem := _command_fault(command)):
            yield (field,), f"{field}: {problem}", ""
    yield from _harness_faults(faults(end_to_end(manifest)), _KEYS_OF_PROGRAM)
    if manifest.target.kind == "command":
        for key, value in (("benchmark_command", manifest.benchmark_command),
                           ("target.csv", manifest.target.csv),
                           ("target.check", manifest.target.check),
                           ("target.metrics", manifest.target.metrics)):
            if not value:
                yield ("target", "kind"), f"a command target needs the key {key!r}", ""
                return
        yield from _harness_faults(faults(command_target(manifest)), _KEYS_OF_COMMAND)


def _harness_faults(faults: Iterator[FieldFault], keys: Mapping[str, str]) -> Iterator[FieldFault]:
    """Yield what the harness would refuse, under the manifest's keys."""
    for key, what, fix in faults:
        at = (keys[str(key[0])], *key[1:]) if str(key[0]) in keys else ("target", *key)
        label = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at)
        yield at, f"{label.removeprefix('.')}: {what}", fix


def _command_fault(command: str, placeholders: Iterable[str] = ()) -> str:
    try:
        shell_command.split(shell_command.fill(command, dict.fromkeys(placeholders, "x")))
    except ValueError as error:
        return str(error)
    return ""


def _env(manifest: Manifest) -> Iterator[FieldFault]:
    for name in manifest.env:
        if not _VARIABLE.fullmatch(name):
            yield ("env", name), f"env: {name!r} is not a variable name", ""
    for index, cli in enumerate(manifest.pool.cli):
        for place, name in enumerate(cli.env):
            if not _VARIABLE.fullmatch(name):
                yield ("pool", "cli", index, "env", place), \
                    f"pool.cli[{index}].env: {name!r} is not a variable name", \
                    "list names only; values come from kopt's own environment"
    pool = manifest.pool
    for part, spec in models(pool):
        if spec.key_env and not _VARIABLE.fullmatch(spec.key_env):
            yield ("pool", part, "key_env"), f"pool.{part}.key_env is not a variable name", \
                "name the variable that holds the key; never write the key here"
        if _KEY_IN_URL.search(spec.api_base):
            yield ("pool", part, "api_base"), f"pool.{part}.api_base contains a password or key", \
                NO_KEYS
        if isinstance(spec, RequestSpec) and spec.script:
            yield ("pool", part, "model"), f"pool.{part}.model: a script can only fill slots", \
                f"name a model, or write {part}: none"
    for place, name in enumerate(pool.agent.env if pool.agent else ()):
        if not _VARIABLE.fullmatch(name) or name in {spec.key_env for _, spec in models(pool)}:
            yield ("pool", "agent", "env", place), \
                f"pool.agent.env: {name!r} is not the name of a variable for commands", \
                "list names only; the key of key_env is for the provider alone"


def models(pool: PoolSpec) -> list[tuple[str, ModelSpec]]:
    """Return the models that the pool names, each after its key in `pool`."""
    parts = {"agent": pool.agent, "planner": pool.planner, "analyst": pool.analyst,
             "reviewer": pool.reviewer}
    return [(part, spec) for part, spec in parts.items() if isinstance(spec, ModelSpec)]


def _pool(manifest: Manifest) -> Iterator[FieldFault]:
    pool = manifest.pool
    if not pool.backends:
        yield ("pool", "backends"), "pool.backends: the list is empty", \
            f"known: {', '.join(BACKENDS)}"
    for index, name in enumerate(pool.backends):
        if name not in BACKENDS:
            yield ("pool", "backends", index), f"pool.backends: unknown backend {name!r}", \
                suggest(name, BACKENDS)
        if name in pool.backends[:index]:
            yield ("pool", "backends", index), f"pool.backends: {name!r} is listed twice", ""
    if pool.cli and "cli" not in pool.backends:
        yield ("pool", "cli"), "pool.cli is given but pool.backends leaves out 'cli'", \
            "add cli to pool.backends"
    if "cli" in pool.backends and not pool.cli:
        yield ("pool", "backends"), "pool.backends has 'cli' but pool.cli names no command", \
            "add a pool.cli entry with name and command"
    if (pool.agent is not None) != ("agent" in pool.backends):
        yield ("pool", "backends"), "pool.agent and the backend 'agent' need each other", \
            "name a model in pool.agent, and add agent to pool.backends"
    if bool(pool.replay) != ("replay" in pool.backends):
        yield ("pool", "backends"), "pool.replay and the backend 'replay' need each other", \
            "name the earlier changes in pool.replay, and add replay to pool.backends"
    for index, language in enumerate(pool.rewrites or ()):
        if language not in LANGUAGES:
            yield ("pool", "rewrites", index), f"pool.rewrites: unknown language {language!r}", \
                suggest(language, tuple(LANGUAGES))
    for index, cli in enumerate(pool.cli):
        yield from _cli(cli, ("pool", "cli", index), {other.name for other in pool.cli[:index]})


def _cli(cli: CliSpec, key: Key, names: set[str]) -> Iterator[FieldFault]:
    label = f"pool.cli[{key[-1]}]"
    if not _SLUG.fullmatch(cli.name):
        yield (*key, "name"), f"{label}.name: {cli.name!r} is not a valid name", \
            "use letters, digits, '.', '_' and '-', at most 64"
    if cli.name in names:
        yield (*key, "name"), f"{label}.name: {cli.name!r} is used twice", ""
    if cli.template and cli.agent is None:
        yield (*key, "template"), f"{label}.template: unknown coding agent {cli.template!r}", \
            suggest(cli.template, templates())
        return
    for field in ("command", "args"):
        if _KEY.search(getattr(cli, field)):
            yield (*key, field), f"{label}.{field} contains a provider's key", NO_KEYS
    if cli.args and (cli.agent is None or cli.command):
        yield (*key, "args"), f"{label}.args: only a template's command takes them", \
            "write them into the command"
    for place, name in enumerate(cli.network if isinstance(cli.network, tuple) else ()):
        if "/" in name or provider_address.parse(name) is None:
            yield (*key, "network", place), f"{label}.network: {name!r} is not an address", \
                "write HOST or HOST:PORT, or true for a whole network"
    if not cli.command_line:
        yield (*key, "command"), f"{label}: there is no command", \
            "give one, or the template of a coding agent"
        return
    if not cli.command:
        if problem := _command_fault(cli.command_line, PLACEHOLDERS):
            yield (*key, "args"), f"{label}.args: {problem}", ""
        return
    try:
        placeholders = [name for _, name, _, _ in string.Formatter().parse(cli.command)
                        if name is not None]
    except ValueError as error:
        yield (*key, "command"), f"{label}.command: {str(error).lower()}", \
            "write {{ and }} for literal braces"
        return
    for name in placeholders:
        if name not in PLACEHOLDERS:
            yield (*key, "command"), f"{label}.command: unknown placeholder {{{name}}}", \
                suggest(name, PLACEHOLDERS)
    if "prompt" not in placeholders:
        yield (*key, "command"), f"{label}.command: the command does not use the task", \
            "use {prompt}, the path of the task's file"
    if problem := _command_fault(cli.command, PLACEHOLDERS):
        yield (*key, "command"), f"{label}.command: {problem}", ""


def _gpu(manifest: Manifest) -> Iterator[FieldFault]:
    count, most = manifest.gpu.count, manifest.gpu.cards
    if count > 1 and manifest.target.kind == "kernel":
        yield ("gpu", "count"), "gpu.count applies only to command targets", \
            "write num_gpus in the task file"
    if count > 1 and manifest.gpu.device == "cpu":
        yield ("gpu", "count"), "gpu.count: the CPU is one device", "name cards in gpu.device"
    if most is not None and most < count:
        yield ("gpu", "cards"), f"gpu.cards: {most} is less than gpu.count, {count}", ""
    if manifest.gpu.retry_s > manifest.gpu.limit_s:
        yield ("gpu", "retry_s"), "gpu.retry_s is longer than gpu.limit_s", ""


def _is_minute(text: str) -> bool:
    try:
        datetime.strptime(text, "%Y-%m-%d %H:%M")
    except ValueError:
        return False
    return True
