"""`kopt new` for a project with its own benchmark: infers, shows and confirms the parameters."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TextIO

from engine.discovery.classes import proposal, quick_script
from engine.discovery.classes.proposal import ClassProposal
from engine.discovery.new import draft_command
from engine.discovery.new.parameters import Parameters
from engine.discovery.project import benchmark, file_changes, native_benchmark, sources
from engine.globs import matches
from engine.manifest.benchmark_target import command_target, sealed_target
from engine.manifest.schema import Manifest
from harness.benchmark.runs import result_table as tables
from harness.benchmark.runs.result_table import ResultTable
from harness.benchmark.spec.command_target import BenchmarkMode
from harness.benchmark.spec.metric_units import RowCost
from harness.call_trace.weights import number
from harness.devices import inventory
from harness.errors import InputError, KoptError
from harness.formats.quantities import counted, listed, percent
from harness.isolation import device_lock
from kopt_tui.cli.new import new_kernel, parameter_list
from kopt_tui.cli.new.new_facts import DraftedClass, NewFacts
from kopt_tui.cli.new.parameter_list import NewManifest
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean

MOST_FILES = 4
"""Most files that a message names."""


def add_command_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for what a benchmark's sources do not say."""
    group = parser.add_argument_group("a project with its own benchmark")
    group.add_argument("--benchmark", metavar="COMMAND", default=None,
                       help="the command that writes a table (default: found in the project)")
    group.add_argument("--csv", metavar="FILE", default=None,
                       help="the file that the benchmark writes: CSV, a JSON list of objects, or "
                       "lines for people, such as `n=64 time: 3.2 ms`, in a .txt, .log or .out")
    group.add_argument("--check", metavar="RULE", default=None,
                       help="when a row counts as correct, such as 'err == 0' or 'ok == PASS'")
    group.add_argument("--metrics", metavar="A,B", default=None,
                       help="columns of times or rates; their names must contain the unit")
    group.add_argument("--edit", metavar="GLOBS", default=None,
                       help="what candidates may change, such as 'src/*.c'")
    group.add_argument("--set", metavar="NAME=VALUE", action="append", default=[],
                       help="any listed parameter, such as build_command='make'; may be repeated")
    group.add_argument("--run", action=argparse.BooleanOptionalAction, default=None,
                       help="run the benchmark once, in a copy, to find the config classes "
                            "(default: ask at a terminal, else no)")


def is_for_benchmark(project: Path, args: argparse.Namespace) -> bool:
    """Return whether the new manifest is about a benchmark instead of a kernel."""
    if args.benchmark is not None:
        return True
    of_kernel = (args.task, args.source, args.entry, args.reference)
    if any(of_kernel) or args.shape or args.classes or sources.task_files(project):
        return False
    if args.csv or args.check or args.metrics or args.run or benchmark.find_benchmarks(project):
        return True
    native = native_benchmark.find(project)
    return native is not None and not native.mixed


def make(args: argparse.Namespace, prompt: Prompt, project: Path, path: Path) -> NewManifest:
    """Return the manifest, at a terminal after the person has confirmed its parameters.

    Raises InputError naming the flag for what could not be inferred.
    """
    values = parameter_list.from_flags(args)
    parameters = draft_command.infer_parameters(project, values)
    to = sys.stderr if args.json or prompt.interactive else sys.stdout
    parameter_list.show(parameters, to)
    parameters = _confirm(parameters, values, prompt, project, before_run=args.run is not False)
    classes: ClassProposal | None = None
    while classes is None and _may_run(args, parameters, prompt):
        try:
            before = parameters
            parameters, classes = _with_run(parameters, values, prompt, project)
        except KoptError as error:
            if not prompt.interactive:
                raise
            print_text(clean(str(error)), to)
            args.run = None  # the person is asked before each further run
            parameters = _confirm(draft_command.infer_parameters(project, values), values, prompt,
                                  project, before_run=True)
        else:
            _print_columns(parameters, to)
            _print_classes(classes, to)
            parameter_list.show_changes(before, parameters, to)
            parameters = _confirm(parameters, values, prompt, project, ran=parameters)
    if prompt.interactive and (lacks := draft_command.complaint(parameters)):
        print_text(lacks, sys.stderr)
        parameters = _confirm(parameters, values, prompt, project)
    manifest = draft_command.make_manifest(
        parameters, os.path.relpath(project, path.resolve().parent),
        parameter_list.pool(args))
    return NewManifest(
        manifest=manifest, parameters=parameters,
        lines=(f"{manifest.target_op} by {manifest.benchmark_command}, which writes "
               f"{parameters['csv'].value}", *([] if args.agent else _outlook(manifest, project))),
        facts=NewFacts(why=classes.strata.why if classes else "", classes=tuple(
            DraftedClass(name=entry.name, rows=len(entry.rows), share=scored, core=entry.core)
            for entry, scored in (zip(classes.strata.classes, classes.scored, strict=True)
                                  if classes else ()))))


def _outlook(manifest: Manifest, project: Path) -> Iterator[str]:
    """Yield a line on what a campaign without an agent can change, if no knobs are declared."""
    files = [path.relative_to(project).as_posix() for path in sources.project_files(project)]
    if not any(matches(path, manifest.edit) for path in files):
        return  # the edited files lie deeper than kopt searches
    target = sealed_target(manifest, files)
    if not target.source:
        changes = file_changes.of_files(project, manifest.edit, target.frozen)
        paths = list(dict.fromkeys(change.path for change in changes))
        yield (f"edit matches several files: a campaign tries "
               f"{counted(len(changes), 'built-in change')} of {listed(paths, MOST_FILES)}"
               if changes else "edit matches several files, to which no built-in change applies: "
               "a campaign will try nothing") + \
            f"; to search knobs, name one file with --edit, {new_kernel.BY_AGENT}"
    elif "kopt: knob" not in (text := sources.read_source(project / target.source)):
        yield f"{new_kernel.without_knobs(text, target.language)}, {new_kernel.BY_AGENT}"


def _confirm(parameters: Parameters, values: dict[str, str], prompt: Prompt, project: Path,
             ran: Parameters | None = None, before_run: bool = False) -> Parameters:
    """Return the parameters after the person's changes.

    A change infers the other parameters again, except for those that a run has shown. With
    `before_run`, parameters that a run may still show can be missing.
    """
    return parameter_list.confirm(
        parameters, values, prompt,
        lambda trial: draft_command.with_given(ran, trial) if ran else
        draft_command.infer_parameters(project, trial),
        partial(draft_command.complaint, before_run=before_run))


def _may_run(args: argparse.Namespace, parameters: Parameters, prompt: Prompt) -> bool:
    if args.run is not None or not prompt.interactive:
        return bool(args.run)
    command = clean(parameters["benchmark_command"].value)
    answer = prompt.line(f"run {command} once, in a copy, to find the config classes? [Y/n] ")
    return answer.casefold() in ("", "y", "yes")


def _with_run(parameters: Parameters, values: dict[str, str], prompt: Prompt,
              project: Path) -> tuple[Parameters, ClassProposal]:
    """Run the benchmark; return the parameters completed from its table, and its classes."""
    from engine.discovery.classes import sample_runs  # start-up time

    if (name := draft_command.missing_parameter(parameters)) in ("benchmark_command", "csv"):
        raise InputError(f"{name} could not be inferred",
                         fix=f"use {draft_command.REQUIRED[name]}")
    card = inventory.find((parameters["device"].value or "auto").partition(",")[0])
    others = [f"waiting while process {pid or '?'} measures on {name}"
              for name in card.lock_names if (pid := device_lock.holder(name)) is not None]
    print_text("; ".join(["running the benchmark", *others]), sys.stderr)
    mode = BenchmarkMode(name="full", command=parameters["benchmark_command"].value,
                         csv=parameters["csv"].value)
    table = sample_runs.run_once(
        project, mode, setup=parameters["setup_command"].value,
        build=parameters["build_command"].value, device=parameters["device"].value or "auto",
        on_wait=lambda text: print(clean(text), file=sys.stderr))
    parameters = draft_command.with_table(parameters, table, parameters["edit"].value)
    if not prompt.interactive:
        draft_command.expect_columns(parameters, table)
    elif lacks := draft_command.complaint(parameters):
        print_text(clean(f"the table has the columns {', '.join(table.columns)}; {lacks}"),
                   sys.stderr)
        parameters = _confirm(parameters, values, prompt, project, ran=parameters)
    while True:
        try:
            classes = _classes(parameters, table, project)
            return draft_command.with_classes(parameters, classes), classes
        except KoptError as error:
            if not prompt.interactive:
                raise
            print_text(clean(str(error)), sys.stderr)
            before = parameters
            parameters = _confirm(parameters, values, prompt, project, ran=parameters)
            if parameters == before:
                raise


def _classes(parameters: Parameters, table: ResultTable, project: Path) -> ClassProposal:
    target = command_target(draft_command.make_manifest(parameters, str(project)))
    try:
        reading = tables.judge_table(table, target, RowCost(target), csv=target.csv)
    except tables.BenchmarkFault as fault:
        raise InputError(fault.what, fix=fault.fix) from None
    if reading.failed:
        failed, column = reading.failed[0], target.check.column
        cell = table.column(column)[failed.row]
        rule = "== WORD" if number(cell) is None else "<= 1e-3"
        raise InputError(f"row {failed.row + 1} of {target.csv}: {failed.what}",
                         fix=f"set what counts as correct: --check '{column} {rule}'")
    files = [path.relative_to(project).as_posix() for path in sources.project_files(project)]
    script = quick_script.benchmark_file(target.command, files)
    return proposal.propose_classes(
        target, [reading], sources.read_source(project / script) if script else "")


def _print_columns(parameters: Parameters, to: TextIO) -> None:
    check = parameters["check"].value
    rounding = f" (to allow other rounding: --check '{check.removesuffix('== 0')}<= 1e-6')" \
        if check.endswith(" == 0") else ""
    print_text(clean(f"a row is correct if {check}{rounding}; it is measured by "
                     f"{parameters['metrics'].value}"), to)


def _print_classes(classes: ClassProposal, to: TextIO) -> None:
    lines = [f"the score is {classes.counting}", *classes.description[:2]]
    for entry, scored in zip(classes.strata.classes, classes.scored, strict=True):
        share = f"{percent(scored)} of the score"
        core = ", core" if entry.core else ""
        lines.append(f"  {entry.name}: {counted(len(entry.rows), 'row')}, {share}{core}")
    for line in lines:
        print_text(clean(line), to)
