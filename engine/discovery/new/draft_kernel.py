"""Draft a kernel target's manifest: the campaign's parameters and those of its task file."""

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


def infer_parameters(task: Target, given: Mapping[str, str]) -> Parameters:
    """Return all parameters in the order they are shown; `given` values override inferred ones."""
    of_task = "by the task file"
    known = dict(parameters.make_parameters((
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
    return parameters.with_given(known, given)


def make_manifest(known: Parameters, task: Target, task_file: str, project: str,
             backends: Sequence[str] = ()) -> Manifest:
    """Return the manifest. Raises InputError for a value that does not fit."""
    value: dict[str, Any] = {
        "created": time.strftime("%Y-%m-%d %H:%M"), "project": project,
        "target": {"kind": "kernel", "task": task_file}, "kernel_source": task.source}
    for name, parameter in known.items():
        if not parameter.value or (name == "edit" and parameter.origin != "given"):
            continue
        if name == "device":
            value["gpu"] = {"device": parameter.value}
        else:
            value[name] = parameters.typed_value(parameter)
    if backends:
        value["pool"] = {"backends": list(backends)}
    return parse(yaml_document.dump(value), "the manifest")
