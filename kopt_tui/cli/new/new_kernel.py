"""`kopt new` for a kernel with a task file: shows the parameters and lets a person change them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from engine.discovery.new import draft_kernel
from engine.discovery.new.parameters import Parameters
from engine.manifest.schema import Manifest
from harness.target import Target
from kopt_tui.cli.new import parameter_list
from kopt_tui.cli.prompt import Prompt


def make(args: argparse.Namespace, prompt: Prompt, project: Path, path: Path, task_file: str,
         task: Target) -> tuple[Manifest, Parameters]:
    """Return the manifest and its parameters, at a terminal after the person has confirmed them.

    Raises InputError for an unknown parameter or a wrong value.
    """
    flags = parameter_list.from_flags(args)
    backends = [name.strip() for name in (args.backends or "").split(",") if name.strip()]
    project_path = os.path.relpath(project, path.resolve().parent)

    def build(known: Parameters) -> Manifest:
        return draft_kernel.make_manifest(known, task, task_file, project_path, backends)

    def change(trial: Mapping[str, str]) -> Parameters:
        known = draft_kernel.infer_parameters(task, trial)
        build(known)  # raises for a wrong value
        return known

    known = change(flags)
    parameter_list.show(known, sys.stderr if args.json or prompt.interactive else sys.stdout)
    known = parameter_list.confirm(known, flags, prompt, change)
    return build(known), known
