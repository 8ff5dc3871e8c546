"""The parameters of a command target: inferred from the project, edited, made a manifest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.discovery.classes import quick_script
from engine.discovery.classes.proposal import ClassProposal
from engine.discovery.new import parameters
from engine.discovery.new.parameters import Parameter, Parameters
from engine.discovery.project import benchmark, kernel_source, sources
from engine.discovery.project.metric_columns import GuessedColumns, guess_columns
from engine.manifest.load import parse
from engine.manifest.schema import Manifest
from harness.benchmark.runs.result_table import ResultTable
from harness.errors import InputError
from harness.formats import yaml_document

TARGET = ("csv", "check", "metrics", "configs", "ignore")
NEEDED = {"benchmark_command": "--benchmark 'python bench.py'", "csv": "--csv bench.csv",
          "check": "--check 'err == 0'", "metrics": "--metrics us", "edit": "--edit kernel.py"}
"""What no manifest of a command target does without, and how it is given."""


LATER = {"configs": "found by the baseline", "target_gpu": "the device's"}
"""What a campaign fills in at its start."""


def infer_all(project: Path, given: Mapping[str, str]) -> Parameters:
    """Return all parameters in the order in which they are shown; `given` ones come first."""
    found = _benchmark(project, given.get("benchmark_command", ""))
    script = found.script if found else ""
    kernel = (
        kernel_source.kernel(project, script) if script else kernel_source.KernelSource(files=())
    )
    guessed = (
        guess_columns(found.columns, hint=" ".join(kernel.files))
        if found
        else GuessedColumns(check="", metrics=(), implementations=())
    )
    of_script = f"by {script}" if script else ""
    quick_command = f"{found.command} --quick" if found and found.quick and not given.get(
        "benchmark_command") else ""
    rows: list[tuple[str, str, str]] = [
        ("target_op", benchmark.op(script, kernel.files, project), "by the names of files"),
        ("target_backend", kernel.language.upper(), ""),
        ("target_lang", kernel.language, ""),
        ("target_gpu", "", ""),
        ("edit", ", ".join(kernel.files), f"loaded {of_script}" if script else ""),
        ("benchmark_command", found.command if found else "", "it writes a CSV"),
        ("csv", found.csv if found else "", f"written {of_script}"),
        ("check", guessed.check, "a column that says right or wrong"),
        ("metrics", ", ".join(guessed.metrics), _of(guessed)),
        ("configs", "", "found in the baseline"),
        ("ignore", "", ""),
        ("quick_command", quick_command, f"an option of {script}"),
        ("setup_command", "", ""),
        ("build_command", kernel.build, "what the benchmark loads"),
        ("format_command", kernel_source.format_command(project, kernel.files), "its style file"),
        ("test_command", benchmark.test_command(project, script, kernel.files), "its tests"),
        ("full_test_command", "", ""),
        ("primary_metric", "", "the metrics"),
        ("performance_target", "", ""),
        ("execution_mode", "repo", "default"),
        ("git_commit", "true", "default"),
        ("git_branch", "auto", "default"),
        ("max_iterations", "10", "default"),
        ("approval", "flagged", "default"),
        ("device", "cpu" if kernel.language == "c" else "auto", "by the language"),
    ]
    known = dict(parameters.of(rows))
    for name, origin in LATER.items():
        known[name] = replace(known[name], origin=origin)
    return changed(known, given)


def _settled(known: Parameters) -> Parameters:
    """Return the parameters with those that hang on others."""
    primary = known["primary_metric"]
    if primary.origin == "given":
        return known
    return {**known, "primary_metric": replace(primary, value=known["metrics"].value)}


def _benchmark(project: Path, command: str) -> benchmark.Benchmark | None:
    """Return the script that a command runs, or the likeliest where it names none."""
    files = [path.relative_to(project).as_posix() for path in sources.files(project)]
    if script := quick_script.benchmark_file(command, files) if command else "":
        return benchmark.benchmark(project, script, sources.read(project / script))
    return next(iter(benchmark.benchmarks(project)), None)


def _of(guessed: GuessedColumns) -> str:
    if len(guessed.implementations) < 2:
        return "columns with a unit"
    mine, *others = guessed.implementations
    return f"of {mine}; there are {', '.join(others)} too"


def changed(known: Parameters, given: Mapping[str, str]) -> Parameters:
    """Return the parameters with some given by a person. Raises InputError for unknown names."""
    return _settled(parameters.changed(known, given))


def seen(known: Parameters, table: ResultTable, hint: str) -> Parameters:
    """Return the parameters with what a run's table says of those that nobody gave."""
    cells = {name: table.column(name) for name in table.columns}
    guessed = guess_columns(table.columns, cells, hint)
    told = {"check": guessed.check, "metrics": ", ".join(guessed.metrics)}
    return _settled({name: replace(one, value=told[name], origin="in the table of a run")
                     if told.get(name) and one.origin != "given" else one
                     for name, one in known.items()})


def classed(known: Parameters, found: ClassProposal) -> Parameters:
    """Return the parameters with the classes that a run's rows were found to make."""
    if known["configs"].origin == "given":
        return known
    told = Parameter(name="configs", value=", ".join(found.strata.configs),
                     origin="found in the table of a run")
    return {name: told if name == "configs" else one for name, one in known.items()}


def missing(known: Parameters) -> str:
    """Return the name of what is needed and not there, "" if nothing is."""
    return next((name for name in NEEDED if not known[name].value), "")


def manifest(known: Parameters, project: str) -> Manifest:
    """Return the manifest. Raises InputError in one line, naming the flag for what is missing."""
    if name := missing(known):
        raise InputError(f"{name} could not be inferred", fix=f"use {NEEDED[name]}")
    value: dict[str, Any] = {"created": time.strftime("%Y-%m-%d %H:%M"), "project": project,
                             "target": {"kind": "command"}}
    for name, one in known.items():
        if not one.value:
            continue
        typed = parameters.typed(one)
        if name in TARGET:
            value["target"][name] = typed
        elif name == "device":
            value["gpu"] = {"device": typed}
        else:
            value[name] = typed
    files = parameters.listed(known["edit"].value)
    if len(files) == 1 and not set(files[0]) & set("*?["):
        value["kernel_source"] = files[0]
    return parse(yaml_document.dump(value), "the manifest")

