"""`kopt new FOLDER --each`: one task and one manifest for each PyTorch module of a folder.

A folder of flashinfer-bench definitions is read with its inner folders.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import sys
from pathlib import Path
from typing import Literal

import msgspec

from engine.discovery.module.draft_module import FOLDER, numbered
from engine.discovery.project.sources import read_source
from harness.compile.place import kind_of, place_on
from harness.devices import inventory
from harness.errors import InputError, KoptError
from harness.formats.quantities import counted
from harness.isolation.zygote_client import WarmStart
from kopt_tui.cli.new import new_definition, new_kernel, new_module, new_target, written_files
from kopt_tui.cli.output import print_json, print_table
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean

MANIFEST = "manifest.yaml"
BatchResult = Literal["new", "there", "failed"]


class BatchFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the folder; `detail` is its manifest, or why it failed."""

    file: str
    result: BatchResult
    detail: str


class WrittenManifests(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each file of a folder."""

    files: tuple[BatchFile, ...]


def run(args: argparse.Namespace, project: Path) -> int:
    """Write the missing manifests and print a line for each file; return 1 if one failed."""
    files = [*modules(project), *definitions(project)]
    if not files:
        raise InputError("no file defines Model, get_inputs and get_init_inputs, and none is a "
                         "flashinfer-bench definition", where=str(project))
    place = place_on(inventory.find("cpu"), "python", scratch="", python=None, env={})
    warm = WarmStart(kind_of(place, "python"))
    results: list[BatchFile] = []
    try:
        for number, file in enumerate(files, 1):
            if not args.json:
                print(f"{number}/{len(files)} {clean(file.name)}", file=sys.stderr)
            result, detail = _write_if_missing(args, project, file, warm)
            results.append(BatchFile(file=file.name, result=result, detail=detail))
    finally:
        warm.close()
    failed = sum(file.result == "failed" for file in results)
    if args.json:
        print_json(WrittenManifests(files=tuple(results)))
    else:
        print_table(("file", "result", ""), map(msgspec.structs.astuple, results))
        print_text(f"{counted(len(results) - failed, 'manifest')} in {project / FOLDER}; next: "
                   f"kopt run {project} --each")
        if not args.agent:
            print_text("kopt run tries its own rewrites of these sources and submitted patches "
                       f"(kopt submit); {new_kernel.BY_AGENT.removeprefix('or ')} --force")
    return 1 if failed else 0


def modules(folder: Path) -> list[Path]:
    """Return the files with a PyTorch module, in the order of the numbers that they begin with."""
    files = [file for file in folder.glob("*.py") if new_target.is_module(read_source(file))]
    return sorted(files, key=lambda file: numbered(file.name))


def definitions(folder: Path) -> list[Path]:
    """Return the definitions of flashinfer-bench in a folder and the folders in it."""
    return [file for file in sorted(folder.rglob("*.json")) if FOLDER not in file.parts
            and new_definition.is_definition(file)]


def _write_if_missing(args: argparse.Namespace, project: Path, file: Path,
                      warm: WarmStart) -> tuple[BatchResult, str]:
    """Write the task and the manifest of a file; return the result and its detail."""
    folder = f"{FOLDER}/{file.stem}"
    path = project / folder / MANIFEST
    if path.exists() and not args.force:
        return "there", str(path.relative_to(project))
    file_args = copy.copy(args)
    file_args.source = file.relative_to(project).as_posix()
    file_args.force, file_args.json = True, False
    make = new_definition.make if file.suffix == ".json" else new_module.make
    try:
        with written_files.all_or_nothing(project, f"{folder}/task.yaml", folder), \
                contextlib.redirect_stdout(io.StringIO()):  # a batch prints a line for each file
            new = make(file_args, Prompt(quiet=True), project, path, folder, zygote=warm.zygote())
            written_files.write_manifest(new.manifest, path)
    except KoptError as error:
        return "failed", clean(str(error))
    return "new", str(path.relative_to(project))
