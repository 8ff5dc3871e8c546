"""Checks a generated harness on the unmodified code, a broken copy and changed kernels."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.discovery.project.sources import NO_SOURCES
from engine.generation import generated_harness
from engine.generation.generated_harness import (
    CHECK,
    CSV,
    LIMIT_S,
    METRIC,
    NAME,
    KernelToBenchmark,
    benchmark_mode,
    command,
)
from engine.verify import canary
from harness.benchmark.runs import row_keys
from harness.benchmark.runs.command_session import CommandSession
from harness.benchmark.runs.result_table import BenchmarkFault, ResultTable
from harness.benchmark.runs.workdir import COMMAND_LIMITS, CommandEnvironment, WorkingCopy
from harness.benchmark.spec.metric_units import RowCost
from harness.call_trace import weights
from harness.devices.device import Device
from harness.formats import file_copy
from harness.formats.quantities import counted, listed
from harness.formats.text import plain

ENOUGH = 3
"""A harness that passes this many changed kernels, which run, is refused: it compares nothing."""
NAMED = 3
"""Faults or configurations that a message names."""
LEAST_S, MOST_TIMES = 5.0, 5.0
"""Limit of a changed kernel's run: MOST_TIMES the unmodified one's time, at least LEAST_S s."""
MOST_CHANGES = 8
_OTHER = {"+": "-", "-": "+", "*": "+", "/": "*", "*=": "+="}
_SKIPPED = {
    True: r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*',
    False: r'/\*[\s\S]*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#[^\n]*'}
_LOOP = re.compile(r"\b(?:for|while)\b")
_OPERATOR = r"(?<=[\w)\]] )(?P<operator>[-+*/]=?)(?= [\w(.-])"


@dataclass
class HarnessFindings:
    """What the checks found so far; `fault` is the first that failed, "" if none did."""

    passed: dict[str, str] = field(default_factory=dict)
    configurations: tuple[dict[str, str], ...] = ()
    fault: str = ""


def check(kernel: KernelToBenchmark, harness: bytes, folder: Path, device: Device, *,
          python: str | None = None, limit_s: Mapping[str, float] = LIMIT_S,
          on_check: Callable[[str], None] = lambda text: None) -> HarnessFindings:
    """Check a harness in copies of the project below `folder`.

    Its runs cannot change the project, and have no network if the machine can confine them.
    """
    findings = HarnessFindings()
    if faults := generated_harness.static_faults(harness.decode()):
        findings.fault = "; ".join(faults[:NAMED])
        return findings
    tree = folder / "checked"
    file_copy.remove(tree)
    file_copy.copy_sources(kernel.project, tree, skipped=(*NO_SOURCES, NAME, CSV, ".kopt_build"))
    (tree / NAME).write_bytes(harness)
    environment = CommandEnvironment(
        env=device.visible_env, python=python, nodes=device.all_nodes, limits=COMMAND_LIMITS)
    with CommandSession(folder / "checks", device, environment, frozen=(NAME,)) as session:
        try:
            _Checks(kernel, tree, session, limit_s, findings, on_check).run()
        except BenchmarkFault as fault:
            findings.fault = plain(str(fault), 1500)
    return findings


class _Checks:
    def __init__(self, kernel: KernelToBenchmark, tree: Path, session: CommandSession,
                 limit_s: Mapping[str, float], findings: HarnessFindings,
                 on_check: Callable[[str], None]) -> None:
        self.kernel, self.tree, self.session, self.limit_s = kernel, tree, session, limit_s
        self.findings, self.on_check = findings, on_check
        self._changed_limit_s: dict[str, float] = {}

    def run(self) -> None:
        """Run all checks. Raises BenchmarkFault for the first that fails."""
        copy = self.session.copy("unpatched", self.tree)
        for mode in ("correctness", "profile"):
            self._begin(mode)
            began = time.monotonic()
            self._run(copy, mode)
            longest_s = max(LEAST_S, MOST_TIMES * (time.monotonic() - began))
            self._changed_limit_s[mode] = min(self.limit_s[mode], longest_s)
            self.findings.passed[mode] = "exit code 0"
        tables = {mode: self._table(copy, mode) for mode in ("benchmark", "full-benchmark")}
        self._same_rows(tables["full-benchmark"], tables["benchmark"])
        self._traced_rows(tables["full-benchmark"])
        self._broken_copy(copy)
        self._changed_kernels()

    def _begin(self, name: str) -> None:
        self._name = name
        self.on_check(name)

    def _run(self, copy: WorkingCopy, mode: str) -> None:
        self._limit(copy, mode)
        try:
            self.session.run_untimed(copy, command(mode, generated_harness.ITERATIONS))
        except BenchmarkFault as fault:
            raise BenchmarkFault(fault.kind, f"--{mode} {fault.what}") from None

    def _limit(self, copy: WorkingCopy, mode: str) -> None:
        copy.environment = replace(copy.environment, limits=replace(
            COMMAND_LIMITS, wall_s=self.limit_s[mode]))

    def _table(self, copy: WorkingCopy, mode: str) -> ResultTable:
        """Run a benchmark mode; return its table. Raises BenchmarkFault if a row fails."""
        self._begin(mode)
        self._limit(copy, mode)
        target = self.kernel.target
        try:
            with self.session.lock() as held:
                reading = self.session.measure(copy, benchmark_mode(mode), target,
                                               RowCost(target), held)
            reading.expect_passed()
        except BenchmarkFault as fault:
            raise BenchmarkFault(fault.kind, f"--{mode} {fault.what}", fix=fault.fix) from None
        self.findings.passed[mode] = counted(len(reading.table.rows), "row")
        return reading.table

    def _same_rows(self, full: ResultTable, quick: ResultTable) -> None:
        columns = [name for name in full.columns if name not in (CHECK, METRIC)]
        if sorted(columns) != sorted(set(quick.columns) - {CHECK, METRIC}):
            raise BenchmarkFault("changed-rows", "--benchmark and --full-benchmark write "
                                                 "different columns")
        keys = row_keys.rows_by_key(full, columns)
        try:
            row_keys.expect_same_rows(keys, row_keys.rows_by_key(quick, columns), columns,
                                      whose="--full-benchmark")
        except BenchmarkFault as fault:
            raise BenchmarkFault(fault.kind, f"--benchmark {fault.what}") from None
        self.findings.configurations = tuple(
            dict(zip(columns, key, strict=True)) for key in keys)

    def _traced_rows(self, table: ResultTable) -> None:
        """Expect the traced configurations and no others."""
        traced = self.kernel.traced
        if traced is None:
            return
        traced_cells = {weights.folded(shape.cells): shape.cells for shape in traced.shapes}
        present = {weights.folded(cells): cells for row in range(len(table.rows))
                   for cells in [table.cells(row, traced.columns)]}
        for word, cells in (("lacks traced", [traced_cells[key] for key in traced_cells
                                              if key not in present]),
                            ("adds untraced", [present[key] for key in present
                                               if key not in traced_cells])):
            if cells:
                named = listed([weights.label(traced.columns, each) for each in cells], NAMED)
                raise BenchmarkFault("changed-rows", f"{word} configurations: {named}")
        self.findings.passed["traced arguments"] = counted(len(traced_cells), "configuration")

    def _broken_copy(self, built: WorkingCopy) -> None:
        """Expect failures with a broken source: in a new folder, and in one with a build.

        The broken file keeps its modification time, as it may after a checkout.
        """
        self._begin("broken source")
        self._break(self.session.copy("broken", self.tree), "full-benchmark", (
            "it does not run the sources of its work folder"))
        self._break(built, "correctness", "it compares file times instead of contents, or runs "
                    "another folder's sources")
        self.findings.passed[self._name] = "noticed"

    def _break(self, copy: WorkingCopy, mode: str, why: str) -> None:
        times = (copy.tree / self.kernel.source).stat()
        self._write_source(copy, canary.BROKEN)
        os.utime(copy.tree / self.kernel.source, ns=(times.st_atime_ns, times.st_mtime_ns))
        if not self._fails(copy, mode):
            raise BenchmarkFault("stale-file", (
                f"--{mode} passes in a folder in which {self.kernel.source} is broken: {why}"))

    def _changed_kernels(self) -> None:
        """Expect --correctness to fail for at least one of the changed kernels that run."""
        self._begin("changed kernels")
        self.limit_s = self._changed_limit_s
        source = (self.tree / self.kernel.source).read_text(errors="replace")
        missed: list[str] = []
        for what, text in changed_kernels(
                source, is_python=self.kernel.source.endswith(".py")):
            copy = self.session.copy("changed", self.tree)
            self._write_source(copy, text.encode())
            if self._fails(copy, "profile"):
                continue
            if self._fails(copy, "correctness"):
                self.findings.passed[self._name] = f"noticed ({what})"
                return
            missed.append(what)
            if len(missed) == ENOUGH:
                raise BenchmarkFault("failed-check", (
                    f"--correctness passes for {ENOUGH} changed kernels "
                    f"({'; '.join(missed)}): it does not compare results"))
        self.findings.passed[self._name] = "not proven: too few changed kernels run"

    def _write_source(self, copy: WorkingCopy, source: bytes) -> None:
        path = copy.tree / self.kernel.source
        path.unlink()
        path.write_bytes(source)

    def _fails(self, copy: WorkingCopy, mode: str) -> bool:
        try:
            self._run(copy, mode)
        except BenchmarkFault:
            return True
        return False


def changed_kernels(source: str, *, is_python: bool) -> Iterator[tuple[str, str]]:
    """Yield up to MOST_CHANGES changed sources, as (what is changed, the whole text).

    In each, one arithmetic operator between spaces is exchanged, outside comments and strings. The
    heads of loops stay unchanged: most changed ones would never end.
    """
    pattern = re.compile(f"{_SKIPPED[is_python]}|{_OPERATOR}", re.MULTILINE)
    places = [match for match in pattern.finditer(source)
              if (match["operator"] or "") in _OTHER and not _LOOP.search(
                  source, source.rfind("\n", 0, match.start()) + 1, match.start())]
    for match in places[::max(1, -(-len(places) // MOST_CHANGES))]:
        old = match["operator"]
        line = source.count("\n", 0, match.start()) + 1
        yield (f"line {line}: {_OTHER[old]} for {old}",
               source[:match.start()] + _OTHER[old] + source[match.end():])
