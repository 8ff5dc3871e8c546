"""`kopt manifest`: check a manifest; --schema prints the JSON schema of manifests."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from engine.manifest import command_checks, rules
from engine.manifest.benchmark_target import check_runnable
from engine.manifest.load import dump, load
from engine.manifest.schema import Manifest
from engine.workers import agent
from engine.workers.model import provider_forwarder
from harness.errors import KoptError, Refused
from harness.tasks import task_file
from kopt_tui.cli.output import print_json, print_note
from kopt_tui.cli.parser import add_json, add_manifest
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean


def add(parser: argparse.ArgumentParser) -> None:
    add_manifest(parser)
    parser.add_argument("--full", action="store_true", help="print the manifest with every default")
    parser.epilog = "A command in a manifest runs with sh -c if it needs a shell, else directly."
    add_json(parser, Manifest)


def run(args: argparse.Namespace) -> int:
    manifest = load(args.manifest)
    if args.full and not args.json:
        print(dump(manifest), end="")
    check_runnable(manifest)
    problems = [*_task_problems(manifest), *command_checks.problems(manifest),
                *command_checks.agent_problems(manifest)]
    if rules.models(manifest.pool) and (lacking := agent.missing_extra()):
        problems.append(lacking)
    is_restricted = manifest.pool.agent is not None or any(
        command.providers(os.environ) is not None for command in manifest.pool.cli)
    notes = [provider_forwarder.unrestricted()] if is_restricted else []
    if args.json:
        if problems:
            raise Refused("; ".join(problems), where=str(args.manifest))
        for note in filter(None, notes):
            print_note(note)
        print_json(manifest)
        return 0
    for line in filter(None, [*problems, *notes]):
        print_text(f"{args.manifest}: {clean(line)}")
    if not (problems or args.full):
        print(f"{args.manifest}: a valid manifest for {manifest.target_op} in {manifest.project}\n"
              f"time limits: {_time_limits(manifest)}")
        for line in command_checks.networks(manifest):
            print(f"network of {clean(line)}")
    return 1 if problems else 0


def _task_problems(manifest: Manifest) -> Iterator[str]:
    """Yield why the task file of a kernel cannot be used."""
    project, name = Path(manifest.project), manifest.target.task
    if manifest.target.kind != "kernel":
        return
    if not (project / name).is_file():
        yield f"target.task: there is no {name} in {project}"
        return
    try:
        task_file.load(project / name)
    except KoptError as error:
        yield str(error)


def _time_limits(manifest: Manifest) -> str:
    """Return the time limits, in seconds, of the commands that the manifest has."""
    limits = {"benchmark_command": ("a benchmark and its tests", manifest.target.timeout_s),
              "format_command": ("format", manifest.limits.format_s),
              "e2e_command": ("end to end", manifest.e2e_timeout_s)}
    if manifest.target.kind == "kernel":
        limits["test_command"] = ("tests", manifest.limits.test_s)
    listed = [f"{label} {seconds:g} s" for key, (label, seconds) in limits.items()
              if getattr(manifest, key)]
    return ", ".join([*listed, f"a worker {manifest.pool.worker_timeout_s:g} s"])
