"""Read WHAT of `kopt new WHAT`, and choose the project, the manifest and the kind of target.

FILE:FUNCTION means the same as --source FILE --entry FUNCTION; a YAML file is the manifest to
write.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
from pathlib import Path
from typing import Literal

from engine.discovery.project import device_sources
from engine.discovery.project.sources import read_source
from engine.repository.git import locate
from engine.routing.source_language import top_level
from harness.errors import InputError, Refused
from harness.formats import file_copy
from kopt_tui.cli.new import new_benchmark

Kind = Literal["benchmark", "kernel", "function", "module", "gpu_source", "definition", "batch"]
"""`kernel`: a task file or a C kernel. `function`: Python or Triton. `module`: a PyTorch `Model`.
`gpu_source`: CUDA or HIP. `definition`: JSON of flashinfer-bench. `batch`: a folder of files, one
manifest each."""
MODULE = frozenset(("Model", "get_inputs", "get_init_inputs"))
MOST_FILES, MOST_BYTES = 10_000, 2 << 30
"""Most entries and bytes of a folder that is a project without a repository."""
DEFINITIONS = (".json",)
MANIFESTS = (".yaml", ".yml")
FORM = "kopt new FILE, FILE:FUNCTION, FILE:Class.method or FOLDER"


def place(args: argparse.Namespace) -> tuple[Path, Path]:
    """Return the project and the manifest to write; set args.source and args.entry from WHAT.

    `args.source` is afterwards relative to the project. Raises InputError.
    """
    what: str = args.what or ""
    manifest: Path | None = args.manifest
    if what.endswith(MANIFESTS):
        what, manifest = "", Path(what)
    project: Path | None = args.project or (manifest.parent if manifest and not what else None)
    if os.path.isdir(what):
        project = project or Path(what)
    elif what:
        file, colon, entry = what.partition(":")
        path = Path(file).resolve()
        if not path.is_file():
            raise InputError("the file does not exist", where=str(path), fix=f"write {FORM}")
        project = project or _small(_project_of(path), path)
        if not path.is_relative_to(project.resolve()):
            raise InputError("the file lies outside the project", where=str(path),
                             fix=f"set --project to a folder that contains it, not {project}")
        args.source = path.relative_to(project.resolve()).as_posix()
        args.entry = entry if colon else args.entry
    project = (project or Path(".")).resolve()
    if not project.is_dir():
        raise InputError("the project folder does not exist", where=str(project),
                         fix="use --project")
    return project, manifest or project / "manifest.yaml"


def choose(project: Path, args: argparse.Namespace) -> Kind:
    """Return the kind of target that the source and the flags name."""
    if args.each:
        return "batch"
    if args.source is None:
        return "benchmark" if new_benchmark.is_for_benchmark(project, args) else "kernel"
    if args.source.endswith(device_sources.SUFFIXES):
        return "gpu_source"
    if args.source.endswith(DEFINITIONS):
        return "definition"
    if not args.source.endswith(".py"):
        return "kernel"
    has_module = args.entry is None and is_module(read_source(project / args.source))
    return "module" if has_module else "function"


def is_module(text: str) -> bool:
    """Return whether a file's text defines a PyTorch module with its inputs."""
    return {node.name for node in top_level(text)
            if isinstance(node, ast.FunctionDef | ast.ClassDef)} >= MODULE


def _small(project: Path, file: Path) -> Path:
    """Return a folder that is no repository, if it can be copied for each verdict.

    Raises Refused for one such as a home folder.
    """
    if locate(project) is not None:
        return project
    size = 0
    with contextlib.suppress(PermissionError):  # a folder that only others may read
        for count, (entry, _) in enumerate(file_copy.walk(project)):
            size += entry.stat(follow_symlinks=False).st_size
            if count >= MOST_FILES or size > MOST_BYTES:
                raise Refused(
                    f"{project} is no git repository, and holds more than {MOST_FILES} files or "
                    f"{MOST_BYTES >> 30} GiB: kopt copies the whole project for each verdict",
                    where=str(file), fix="put the kernel's files in a folder of their own, with "
                    "`git init`")
    return project


def _project_of(file: Path) -> Path:
    """Return a file's repository, else the current folder if the file is in it, else its folder."""
    location = locate(file.parent)
    if location is not None and location.work_tree is not None:
        return location.work_tree
    here = Path.cwd()
    return here if file.is_relative_to(here) else file.parent
