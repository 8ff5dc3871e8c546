"""`kopt new` for a kernel with a task file: the campaign's parameters shown and confirmed."""

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
    """Return the manifest, confirmed by the person where one is there, and what it is made of.

    Raises InputError for what is no parameter, or no value of one.
    """
    given = parameter_list.given(args)
    backends = [name.strip() for name in (args.backends or "").split(",") if name.strip()]
    place = os.path.relpath(project, path.resolve().parent)

    def made(known: Parameters) -> Manifest:
        return draft_kernel.make_manifest(known, task, task_file, place, backends)

    def change(trial: Mapping[str, str]) -> Parameters:
        known = draft_kernel.infer_parameters(task, trial)
        made(known)
        return known

    known = change(given)
    parameter_list.show(known, sys.stderr if args.json or prompt.interactive else sys.stdout)
    known = parameter_list.confirmed(known, given, prompt, change)
    return made(known), known
