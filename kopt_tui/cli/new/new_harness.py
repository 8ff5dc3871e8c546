"""`kopt subagents harness`: have a benchmark written for a kernel, or check it again."""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from engine.coding_agents import agent_templates
from engine.discovery.new.parameters import pool_of
from engine.generation import generated_harness, harness_author, harness_checks
from engine.generation.generated_harness import NAME, HarnessRecord, KernelToBenchmark
from engine.generation.harness_author import HarnessAuthor
from engine.manifest.pool_schema import CliSpec, PoolSpec
from engine.manifest.schema import Manifest
from engine.verify.fleet import Fleet
from engine.workers import registry
from engine.workers.protocol import WorkerBench
from harness.call_trace import weights
from harness.devices import inventory
from harness.devices.device import Device
from harness.errors import InputError, Refused
from harness.formats.quantities import counted
from harness.formats.text import read_text
from harness.isolation.zygote_client import WarmStart
from kopt_tui.cli.new import written_files
from kopt_tui.cli.output import print_json, print_note
from kopt_tui.snapshot.phrases import clean

BACKEND = "cli"


class WrittenHarness(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark that was written, passed its checks and is frozen."""

    harness: str
    manifest: str
    record: HarnessRecord


class CheckedHarness(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark that was checked again: `fault` is the first check that failed, "" if none."""

    passed: dict[str, str]
    fault: str
    changed: bool
    """Whether it is not the one that was frozen."""
    configurations: tuple[dict[str, str], ...]


ANSWERS = (WrittenHarness, CheckedHarness)
LANGUAGES = {".c": "c", ".cu": "cuda", ".hip": "hip", ".py": "python"}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="FILE[:FUNCTION]", help="the kernel, in the project")
    parser.add_argument("--agent", metavar="NAME|COMMAND", default="",
                        help="the coding agent that writes it: "
                        f"{', '.join(agent_templates.names())}, or a command such as "
                        "'my-agent --prompt-file {prompt}'; without one, the "
                        f"existing {NAME} is checked again")
    parser.add_argument("--agent-env", metavar="A,B", default="",
                        help="environment variables that it may see, such as its key")
    parser.add_argument("--agent-network", metavar="HOST,...", default="",
                        help="the hosts that it may reach, `all` for the whole network (default: "
                        "the providers of its keys and URLs)")
    parser.add_argument("--agent-timeout", metavar="SECONDS", type=float, default=1800.0,
                        help="its time limit for one attempt (default 1800)")
    parser.add_argument("--no-review", action="store_true",
                        help="skip the agent's review of a benchmark that passed the checks")
    parser.add_argument("--traced", metavar="FILE", default="",
                        help="the configurations that kopt trace recorded, inside the project; "
                        "exactly these are measured")
    parser.add_argument("--project", metavar="DIR", type=Path, default=Path("."),
                        help="the project (default: this folder)")
    parser.add_argument("--device", metavar="DEVICE", default="",
                        help="auto, cpu, cuda:0, UUID (default: cpu for C, else auto)")
    parser.add_argument("--manifest", metavar="FILE", default="",
                        help="the manifest to write (default: manifest.yaml in the project)")
    parser.add_argument("--force", action="store_true", help="overwrite both files")


def run(args: argparse.Namespace) -> int:
    kernel = _kernel(args)
    device = inventory.find(kernel.device)
    with tempfile.TemporaryDirectory(prefix="kopt-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        if not args.agent:
            return _check_again(kernel, folder, device, args)
        manifest_path = Path(os.path.abspath(args.manifest or kernel.project / "manifest.yaml"))
        if not manifest_path.parent.is_dir():
            raise InputError("its folder does not exist", where=str(manifest_path))
        for path in (kernel.project / NAME, manifest_path):
            if path.exists() and not args.force:
                raise Refused("exists already", where=str(path), fix="--force overwrites it")
        record = harness_author.write(kernel, _author(kernel, folder, device, args), folder,
                                      on_event=_quiet if args.json else print_note)
    manifest = generated_harness.manifest(
        kernel, _pool(args), manifest_path.parent)
    written_files.write_manifest(manifest, manifest_path)
    if args.json:
        print_json(WrittenHarness(harness=str(kernel.project / NAME),
                                  manifest=str(manifest_path), record=record))
    else:
        _print(record)
        print(clean(f"wrote {NAME} and {manifest_path}; next: commit both, then kopt run "
                    f"{manifest_path}", 600))
    return 0


def _pool(args: argparse.Namespace) -> dict[str, Any]:
    return pool_of(agent=args.agent, agent_env=args.agent_env, agent_network=args.agent_network)


def _kernel(args: argparse.Namespace) -> KernelToBenchmark:
    """Return the kernel that the arguments name. Raises InputError."""
    file, _, entry = args.what.partition(":")
    project = args.project.resolve()
    path = (project / file).resolve()
    if not path.is_file() or not path.is_relative_to(project):
        raise InputError("is not a file of the project", where=str(path), fix="--project DIR")
    language = LANGUAGES.get(path.suffix, "")
    if language == "python" and "triton.jit" in read_text(path):
        language = "triton"
    traced, traced_file = None, ""
    if args.traced:
        calls = (project / args.traced).resolve()
        if not calls.is_file() or not calls.is_relative_to(project):
            raise InputError("is not a file of the project", where=args.traced,
                             fix="kopt trace --output writes one there")
        traced_file = calls.relative_to(project).as_posix()
        traced = weights.parse(calls.read_bytes(), args.traced)
    return KernelToBenchmark(
        project=project, source=path.relative_to(project).as_posix(), entry=entry, traced=traced,
        traced_file=traced_file, device=args.device or ("cpu" if language == "c" else "auto"),
        language=language)


def _author(kernel: KernelToBenchmark, folder: Path, device: Device,
            args: argparse.Namespace) -> HarnessAuthor:
    """Return the coding agent as the author, in a pool of its own."""
    [agent] = _pool(args)["cli"]
    command = msgspec.convert({**agent, "timeout_s": args.agent_timeout}, CliSpec)
    manifest = Manifest(target_op=kernel.op, project=str(kernel.project),
                        pool=PoolSpec(cli=(command,)))
    (scratch := folder / "scratch").mkdir()
    bench = WorkerBench(
        target=kernel.target, device=device, worktree=str(folder), baseline=str(folder),
        scratch=str(scratch), base_commit="", edit=(NAME,), timeout_s=args.agent_timeout,
        selftest_iterations=generated_harness.ITERATIONS,
        fleet=Fleet([(device, WarmStart(None))], retry_s=600.0, limit_s=3600.0,
                    fix="free one, then try again"))
    return HarnessAuthor(worker=registry.workers(manifest)[BACKEND], bench=bench, backend=BACKEND,
                         option=command.name, review=not args.no_review)


def _check_again(kernel: KernelToBenchmark, folder: Path, device: Device,
                 args: argparse.Namespace) -> int:
    """Check the harness that is in the project, and whether it is still the frozen one."""
    if not (kernel.project / generated_harness.NAME).exists():
        raise Refused(f"{generated_harness.NAME} does not exist", where=str(kernel.project),
                      fix="--agent NAME has it written")
    harness = generated_harness.read(kernel.project)
    frozen = generated_harness.recorded(kernel.project)
    is_changed = frozen is not None and frozen.sha256 != hashlib.sha256(harness).hexdigest()
    findings = harness_checks.check(kernel, harness, folder, device,
                                    on_check=_quiet if args.json else print_note)
    if args.json:
        print_json(CheckedHarness(passed=findings.passed, fault=findings.fault,
                                  changed=is_changed, configurations=findings.configurations))
    else:
        for name, result in findings.passed.items():
            print(clean(f"{name}: {result}"))
        if is_changed:
            print(f"{NAME} has changed since it was frozen: its SHA-256 differs")
        print(clean(f"{NAME}: {findings.fault}", 1600) if findings.fault else
              f"{NAME} passes all checks")
    return 1 if findings.fault or is_changed else 0


def _print(record: HarnessRecord) -> None:
    for name, result in record.checks.items():
        print(clean(f"{name}: {result}"))
    print(f"review: {record.review}")
    print(f"{counted(len(record.configurations), 'configuration')} from "
          f"{clean(record.configurations_from)}; attempt {record.attempts}; "
          f"SHA-256 {record.sha256[:16]}")


def _quiet(text: str) -> None:
    """Print nothing."""
