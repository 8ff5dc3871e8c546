"""Draft a command target's manifest: infer its parameters, complete them by a run, build it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.discovery.classes import quick_script
from engine.discovery.classes.proposal import ClassProposal
from engine.discovery.new import parameters
from engine.discovery.new.parameters import Parameter, Parameters
from engine.discovery.project import benchmark, kernel_source, native_benchmark, sources
from engine.discovery.project.columns import GuessedColumns, guess_columns
from engine.globs import matches
from engine.manifest.schema import Manifest
from engine.routing import source_language
from harness.benchmark.runs.result_table import PRINTED, ResultTable
from harness.benchmark.spec import metric_units
from harness.call_trace import weights
from harness.errors import InputError
from harness.formats.quantities import listed
from harness.formats.text import one_line

REQUIRED = {"benchmark_command": "--benchmark 'python bench.py'",
            "csv": "--csv bench.csv, a table that the benchmark writes: a row for each shape, with "
            "its time and whether the result is correct; if it prints that: --benchmark "
            "'python bench.py > bench.csv', or > bench.txt for lines such as `n=8 time: 2 ms PASS`",
            "check": "--check 'err <= 1e-6'", "metrics": "--metrics us", "edit": "--edit 'src/*.c'"}
"""Required parameters of a command target, and the flag that gives each."""
ANSWERS = {"benchmark_command": "benchmark_command=python bench.py",
           "csv": "csv=bench.csv, the table that it writes; if it prints the table: "
                  "benchmark_command=python bench.py > bench.csv, or > bench.txt for lines such "
                  "as `n=8 time: 2 ms PASS`",
           "check": "check=err <= 1e-6, or another condition that holds for correct rows",
           "metrics": "metrics=us, or other columns of times or rates",
           "edit": "edit=src/*.c, the files that candidates may change"}
"""Required parameters, and the answer by which a person sets each."""
OF_RUN = {"check": ("says whether a row's result is correct", "let the benchmark write one, such "
                    "as the largest error against a plain computation; then --check 'err <= 1e-6'"),
          "metrics": ("is a time or a rate with its unit in its name", "name it like time_ms or "
                      "gbps; then --metrics time_ms")}
"""Required parameters that a run of the benchmark can show. If one stays unknown, the error says
that no column of the table does the first text; the second one is the advice."""
_PYTEST_JSON = re.compile(r"--benchmark-json[= ](\S+)")
PRINT_CHECK = "let the benchmark print PASS or FAIL, its largest error, or a checksum"
MOST_COLUMNS = 12
"""Most columns of a table that a message names."""
LATER = {"configs": "found by the baseline", "target_gpu": "the device's"}
"""Parameters that a campaign fills in at its start."""


def infer_parameters(project: Path, overrides: Mapping[str, str]) -> Parameters:
    """Return all parameters in the order they are shown; `overrides` replace inferred ones."""
    command = overrides.get("benchmark_command", "")
    detected = _benchmark(project, command)
    native = None if detected else native_benchmark.find(project)
    if native and native.mixed and not overrides.get("edit"):
        functions = sources.c_functions(sources.read_source(project / native.mixed))
        name = functions[0].name if len(functions) == 1 else "FUNCTION"
        raise InputError("the file holds both the kernel and its measurement, which candidates may "
                         "not change", where=native.mixed,
                         fix="move the kernel to a file of its own; or let kopt measure it, with "
                         f"your reference: kopt new {native.mixed}:{name}")
    if native and not native.command and not command:
        raise InputError("which program measures the kernel, and where CMake puts it, could not be "
                         "inferred", where="CMakeLists.txt",
                         fix=f"name it: --benchmark '{native_benchmark.OF_CMAKE}'; kopt builds it "
                         f"by {native.kernel.build}")
    script = detected.script if detected else ""
    kernel = kernel_source.find_kernel(project, script) if script else \
        native.kernel if native else kernel_source.KernelSource(files=())
    if edit := overrides.get("edit", ""):
        kernel = replace(kernel, language=_language(project, edit) or kernel.language)
    guessed = guess_columns(detected.columns, hint=" ".join(kernel.files)) if detected else \
        GuessedColumns(check="", metrics=(), implementations=())
    of_script = f"by {script}" if script else ""
    has_quick = detected and detected.has_quick_option and not command
    quick_command = f"{detected.command} --quick" if detected and has_quick else ""
    test = native.test if native else benchmark.test_command(project, script, kernel.files)
    rows: list[tuple[str, str, str]] = [
        ("target_op", benchmark.op_name(script, kernel.files, project), "by the names of files"),
        ("target_backend", kernel.language.upper(), ""),
        ("target_lang", kernel.language, ""),
        ("target_gpu", "", ""),
        ("edit", ", ".join(kernel.files), f"loaded {of_script}" if script else "its sources"),
        *([("frozen", ", ".join(native.frozen), "they measure the kernel")] if native else []),
        ("benchmark_command", detected.command if detected else
         native.printed_command if native else "",
         "it writes a table" if detected and detected.csv else
         native.origin if native else "by its name"),
        ("csv", *_csv(command or (native.printed_command if native else ""), detected)),
        ("check", guessed.check, "a column that says whether a row is correct"),
        ("metrics", ", ".join(guessed.metrics), _metric_origin(guessed)),
        ("configs", "", "found in the baseline"),
        ("ignore", "", ""),
        ("quick_command", quick_command, f"an option of {script}"),
        ("setup_command", "", ""),
        ("build_command", kernel.build, "builds what the benchmark loads"),
        ("format_command", kernel_source.format_command(project, kernel.files), "its style file"),
        ("test_command", test, "its tests"),
        ("full_test_command", "", ""),
        ("primary_metric", "", "the metrics"),
        *parameters.OF_CAMPAIGN,
        ("device", "cpu" if kernel.language == "c" else "auto", "by the language"),
    ]
    inferred = dict(parameters.make_parameters(rows))
    for name, origin in LATER.items():
        inferred[name] = replace(inferred[name], origin=origin)
    return with_given(inferred, overrides)


def _csv(command: str, detected: benchmark.Benchmark | None) -> tuple[str, str]:
    """Return the table's file, to which the command redirects or the script writes, and why."""
    if redirected := benchmark.REDIRECTED.search(command):
        return redirected[1], "the command's output"
    if named := _PYTEST_JSON.search(command):
        return named[1], "of pytest-benchmark"
    return (detected.csv, f"written by {detected.script}") if detected else ("", "")


def _language(project: Path, edit: str) -> str:
    """Return the language of the first file that globs name, "" if they name none."""
    globs = [glob.strip() for glob in edit.split(",")]
    source = next((path for path in sources.project_files(project)
                   if matches(path.relative_to(project).as_posix(), globs)), None)
    return source_language.detect(sources.read_source(source), source.name) if source else ""


def _with_primary(known: Parameters) -> Parameters:
    """Return the parameters with the primary metrics, which default to all metrics."""
    primary = known["primary_metric"]
    if primary.origin == "given":
        return known
    return {**known, "primary_metric": replace(primary, value=known["metrics"].value)}


def _benchmark(project: Path, command: str) -> benchmark.Benchmark | None:
    """Return the script that a command runs, or the likeliest one if it names none."""
    files = [path.relative_to(project).as_posix() for path in sources.project_files(project)]
    if script := quick_script.benchmark_file(command, files) if command else "":
        return benchmark.read_benchmark(project, script, sources.read_source(project / script))
    return next(iter(benchmark.find_benchmarks(project)), None) or benchmark.by_name(project)


def _metric_origin(guessed: GuessedColumns) -> str:
    if len(guessed.implementations) < 2:
        return "columns with a unit"
    measured, *others = guessed.implementations
    return f"of {measured}; the table also has {', '.join(others)}"


def with_given(known: Parameters, overrides: Mapping[str, str]) -> Parameters:
    """Return the parameters with values that a person gave. Raises InputError for unknown names."""
    return _with_primary(parameters.with_given(known, overrides))


def with_table(known: Parameters, table: ResultTable, hint: str) -> Parameters:
    """Return the parameters with a run's check and metrics, unless a person gave them."""
    cells = {name: table.column(name) for name in table.columns}
    guessed = guess_columns(table.columns, cells, hint)
    values = {"check": guessed.check, "metrics": ", ".join(guessed.metrics)}
    if guessed.rivals and known["csv"].value.endswith(PRINTED):
        values["metrics"] = ""  # nobody named these columns for kopt
    return _with_primary({
        name: replace(parameter, value=values[name], origin="in the table of a run")
        if values.get(name) and parameter.origin != "given" else parameter
        for name, parameter in known.items()})


def with_classes(known: Parameters, proposal: ClassProposal) -> Parameters:
    """Return the parameters with the config columns proposed from a run."""
    if known["configs"].origin == "given":
        return known
    configs = Parameter(name="configs", value=", ".join(proposal.strata.configs),
                        origin="found in the table of a run")
    return {**known, "configs": configs}


def missing_parameter(known: Parameters, *, before_run: bool = False) -> str:
    """Return the first required parameter without a value, "" if there is none.

    `before_run` leaves out those that a run of the benchmark may show.
    """
    return next((name for name in REQUIRED if not known[name].value
                 and not (before_run and name in OF_RUN)), "")


def complaint(known: Parameters, *, before_run: bool = False) -> str:
    """Return a message about the first missing parameter, "" if none is missing."""
    name = missing_parameter(known, before_run=before_run)
    return name and f"{name} is still missing: write {ANSWERS[name]}"


def expect_columns(known: Parameters, table: ResultTable) -> None:
    """Raise InputError for a run's table that lacks a required column."""
    csv = known["csv"].value
    if len(table.columns) == 1 and " " in table.columns[0]:
        raise InputError(f"{csv} has a single column, '{one_line(table.columns[0], 80)}'",
                         fix="let the benchmark separate the cells of a row by commas")
    name = missing_parameter(known)
    cells = {column: table.column(column) for column in table.columns}
    if name and (rivals := guess_columns(table.columns, cells, known["edit"].value).rivals):
        raise InputError(f"{csv} has several times or rates: {listed(rivals, MOST_COLUMNS)}",
                         fix=f"say which candidates should improve: --metrics '{rivals[-1]}'")
    if name == "metrics":
        _expect_positive(csv, cells)
    if name in OF_RUN:
        what, fix = OF_RUN[name]
        if name == "check" and csv.endswith(PRINTED):
            fix = PRINT_CHECK
            if test := known["test_command"].value:
                fix += f"; or let the tests decide: --benchmark " \
                    f"'{known['benchmark_command'].value} && {test} && echo PASS >> {csv}'"
        has = listed([one_line(column, 80) for column in table.columns], MOST_COLUMNS)
        raise InputError(f"no column of {csv} {what}: it has {has}", fix=fix)


def _expect_positive(csv: str, cells: Mapping[str, Sequence[str]]) -> None:
    """Raise InputError for the first cell of a time or a rate that is not above zero."""
    for column, values in cells.items():
        for row, cell in enumerate(values if metric_units.unit_in(column) else ()):
            value = weights.number(cell)
            if value is None or not value > 0:
                raise InputError(
                    f"row {row + 1} of {csv}: {column} is {cell!r}, not a number above zero",
                    fix="let the benchmark time more calls at once, print more digits, and use "
                    "what the kernel computes")


def make_manifest(known: Parameters, project: str,
                  pool: Mapping[str, Any] = MappingProxyType({})) -> Manifest:
    """Return the manifest. Raises InputError with the flag that sets a missing parameter."""
    if name := missing_parameter(known):
        run = "--run, which runs the benchmark once and reads its table, or " * (name in OF_RUN)
        raise InputError(f"{name} could not be inferred", fix=f"use {run}{REQUIRED[name]}")
    files = parameters.split_list(known["edit"].value)
    is_one = len(files) == 1 and not set(files[0]) & set("*?[")
    return parameters.make_manifest(known, pool, project=project, target={"kind": "command"},
                                    kernel_source=files[0] if is_one else "")
