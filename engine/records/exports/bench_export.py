"""A campaign's result as a Solution and Traces of flashinfer-bench."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from engine.discovery.definition import bench_schema
from engine.discovery.definition.bench_schema import (
    BenchCorrectness,
    BenchEnvironment,
    BenchEvaluation,
    BenchSource,
    BenchTrace,
    BuildSpec,
    Definition,
    Performance,
    Solution,
)
from engine.discovery.definition.definition_files import DEFINITION, SOLUTION, WORKLOADS
from engine.records.exports import kept_result
from engine.records.exports.kept_result import KeptResult
from harness.errors import InputError, Refused
from harness.verdict import HARNESS_VERSION, LIBRARIES, Row

AUTHOR = "kopt"


def files(result: KeptResult, at: float) -> dict[str, bytes]:
    """Return the solution and its traces, by their paths in a flashinfer-bench data set.

    `at` is when the campaign ended (seconds since the epoch). Raises Refused without a result.
    """
    traces = tuple(_traces(result, at))
    definition = msgspec.json.decode(_read(result, DEFINITION), type=Definition)
    solution = _solution(result, definition.name)
    folder = f"{AUTHOR}/{definition.op_type}/{definition.name}"
    return {f"solutions/{folder}/{solution.name}.json":
            msgspec.json.format(msgspec.json.encode(solution), indent=2) + b"\n",
            f"traces/{folder}.jsonl":
            b"".join(msgspec.json.encode(trace) + b"\n" for trace in traces)}


def _traces(result: KeptResult, at: float) -> Iterator[BenchTrace]:
    """Yield a trace for each config class: the workload that stands for it, and its result."""
    verdict = kept_result.measured_verdict(result)
    rows = {row.config_class: row for row in verdict.rows}
    workloads = [msgspec.json.decode(line, type=BenchTrace)
                 for line in _read(result, WORKLOADS).splitlines()]
    if len(workloads) != len(result.target.classes):
        raise Refused(f"{WORKLOADS} has {len(workloads)} workloads for "
                      f"{len(result.target.classes)} config classes", where=result.folder,
                      fix="kopt new definition.json --force recreates the task")
    measured_with = dict(library.split(" ", 1) for fact in verdict.evidence
                         if fact.kind == LIBRARIES for library in fact.detail.split(", "))
    environment = BenchEnvironment(hardware=_hardware(result), libs={
        **measured_with, AUTHOR: f"harness {HARNESS_VERSION}"})
    for config_class, workload in zip(result.target.classes, workloads, strict=True):
        correctness, performance = _measured(rows[config_class.name])
        yield BenchTrace(
            definition=workload.definition, workload=workload.workload,
            solution=_name(result, workload.definition), evaluation=BenchEvaluation(
                status="PASSED", environment=environment, log=_log(result),
                timestamp=datetime.fromtimestamp(at, UTC).isoformat(), correctness=correctness,
                performance=performance))


def _read(result: KeptResult, name: str) -> bytes:
    """Return a document that `kopt new` wrote. Raises Refused."""
    try:
        return result.read(f"{result.folder}/{name}")
    except InputError:
        raise Refused(f"{result.row.id} was not made from a definition of flashinfer-bench: {name} "
                      "is missing", where=result.folder,
                      fix="kopt new definition.json makes such a task") from None


def _measured(row: Row) -> tuple[BenchCorrectness, Performance]:
    """Return what was measured of one class. Raises Refused for a class without a latency."""
    if row.latency_us is None or row.incumbent_us is None:
        raise Refused(f"the class {row.config_class} has no latency",
                      fix="run the campaign on a machine that can measure it")
    errors = BenchCorrectness(max_relative_error=row.max_rel_err or 0.0,
                              max_absolute_error=row.max_abs_err or 0.0)
    return errors, Performance(latency_ms=row.latency_us / 1000,
                               reference_latency_ms=row.incumbent_us / 1000,
                               speedup_factor=row.incumbent_us / row.latency_us)


def _solution(result: KeptResult, definition: str) -> Solution:
    target, folder = result.target, f"solutions/{definition}"
    original = _given_solution(result)
    spec = BuildSpec(
        language="triton" if "triton" in result.source else
        original.spec.language if original is not None else "python",
        target_hardware=(_hardware(result),),
        entry_point=f"{target.source.removeprefix(f'{folder}/')}::{target.entry}",
        dependencies=original.spec.dependencies if original is not None else ("torch",),
        destination_passing_style=not target.returns)
    return Solution(
        name=_name(result, definition), definition=definition, author=AUTHOR, spec=spec,
        description=f"Made faster by the kopt campaign {result.row.id}.",
        sources=tuple(BenchSource(path=path.removeprefix(f"{folder}/"),
                                  content=result.read(path).decode())
                      for path in result.files(folder)))


def _given_solution(result: KeptResult) -> Solution | None:
    path = f"{result.folder}/{SOLUTION}"
    if path not in result.files(result.folder):
        return None
    return msgspec.json.decode(result.read(path), type=bench_schema.Solution)


def _log(result: KeptResult) -> str:
    original = _given_solution(result)
    baseline = "the definition's reference" if original is None else \
        f"the solution {original.name}, which the campaign started from, not of the reference"
    return (f"Measured by the kopt campaign {result.row.id}. reference_latency_ms is that of "
            f"{baseline}. max_relative_error divides by the larger of the expected value and the "
            "root mean square of all.")


def _name(result: KeptResult, definition: str) -> str:
    return f"{definition}_{AUTHOR}_{result.row.best_commit[:8]}"


def _hardware(result: KeptResult) -> str:
    return re.sub(r"\s+", "_", result.row.gpu or result.row.device) or "cpu"
