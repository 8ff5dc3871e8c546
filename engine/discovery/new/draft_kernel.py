"""The parameters of a kernel target: those of its campaign, beside what its task file says."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.discovery.new import parameters
from engine.discovery.new.parameters import Parameters
from engine.manifest.load import parse
from engine.manifest.schema import Manifest
from harness.formats import yaml_document
from harness.target import Target

ROUNDS = 10


def infer_all(task: Target, given: Mapping[str, str]) -> Parameters:
    """Return all parameters in the order in which they are shown; `given` ones come first."""
    of_task = "by the task file"
    known = dict(parameters.of((
        ("target_op", task.op, of_task),
        ("target_backend", task.backend or task.language.upper(), of_task),
        ("target_lang", task.language, of_task),
        ("target_gpu", "", ""),
        ("edit", task.source, "the task's source"),
        ("format_command", "", ""),
        ("test_command", "", ""),
        ("full_test_command", "", ""),
        ("performance_target", "", ""),
        ("execution_mode", "repo", "default"),
        ("git_commit", "true", "default"),
        ("git_branch", "auto", "default"),
        ("max_iterations", str(ROUNDS), "default"),
        ("approval", "flagged", "default"),
        ("device", "cpu" if task.language == "c" else "auto", "by the language"))))
    known["target_gpu"] = replace(known["target_gpu"], origin="the device's")
    return parameters.changed(known, given)


def manifest(known: Parameters, task: Target, task_file: str, project: str,
             backends: Sequence[str] = ()) -> Manifest:
    """Return the manifest. Raises InputError in one line for a value that it cannot have."""
    value: dict[str, Any] = {
        "created": time.strftime("%Y-%m-%d %H:%M"), "project": project,
        "target": {"kind": "kernel", "task": task_file}, "kernel_source": task.source}
    for name, one in known.items():
        if not one.value or (name == "edit" and one.origin != "given"):
            continue
        if name == "device":
            value["gpu"] = {"device": one.value}
        else:
            value[name] = parameters.typed(one)
    if backends:
        value["pool"] = {"backends": list(backends)}
    return parse(yaml_document.dump(value), "the manifest")
