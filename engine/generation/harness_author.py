"""The flow of a generated harness: write, check, review, repair up to three times, freeze."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.discovery.project.sources import NO_SOURCES
from engine.generation import generated_harness, harness_checks
from engine.generation.generated_harness import LIMIT_S, NAME, HarnessRecord, KernelToBenchmark
from engine.generation.harness_checks import HarnessFindings
from engine.markdown import fenced
from engine.task import Task
from engine.workers.protocol import LOG, Worker, WorkerBench
from harness.call_trace import weights
from harness.errors import KoptError, Refused
from harness.formats import file_copy
from harness.formats.text import plain, read_text

REPAIRS = 3
GENERATOR, VERIFIER = "harness-generator", "harness-verifier"
MOST_SHAPES = 1000
"""Most traced configurations that a prompt lists."""
_VERDICT = re.compile(r"^Verdict: (PASS|FAIL|ESCALATE)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class HarnessAuthor:
    """A worker of any backend, with the bench that it works on and the option that it uses.

    With `review`, the same worker reviews a harness that has passed the checks.
    """

    worker: Worker
    bench: WorkerBench
    backend: str
    option: str = ""
    review: bool = True

    def work(self, folder: Path, subagent: str, instructions: str,
             on_event: Callable[[str], None]) -> tuple[bool, str]:
        """Do one task in a folder; return whether it succeeded, and its output, else a summary."""
        scratch = Path(self.bench.scratch)
        (scratch / LOG).unlink(missing_ok=True)
        task = Task(slot=subagent, kind="fixed", backend=self.backend, option=self.option, seed=0,
                    trials=1, hypothesis="", bottleneck="", subagent=subagent,
                    instructions=instructions)
        report = self.worker(
            task, msgspec.structs.replace(self.bench, worktree=str(folder)),
            lambda stage, detail, *_: on_event(f"{stage} {plain(detail, 120)}"), threading.Event())
        ended_well = report.ok and not report.cut
        return ended_well, read_text(scratch / LOG) if ended_well else report.summary


def write(kernel: KernelToBenchmark, author: HarnessAuthor, folder: Path, *,
          limit_s: Mapping[str, float] = LIMIT_S,
          on_event: Callable[[str], None] = lambda text: None) -> HarnessRecord:
    """Let the author write a harness, and freeze it in the project once it passes.

    Raises Refused if the last repair fails, if the reviewer asks a person a question, or if it
    gives no verdict.
    """
    harness, complaint = b"", ""
    for attempt in range(1, 2 + REPAIRS):
        on_event(f"attempt {attempt} of {1 + REPAIRS}"
                 + (f", to repair: {plain(complaint, 300)}" if complaint else ""))
        try:
            harness = _written(kernel, author, folder, harness, complaint, on_event)
        except Refused as refusal:
            complaint = str(refusal)
            continue
        findings = harness_checks.check(
            kernel, harness, folder, author.bench.device, python=author.bench.python,
            limit_s=limit_s, on_check=lambda name: on_event(f"checking {name}"))
        complaint = findings.fault or _reviewed(
            kernel, author, folder, harness, findings, on_event)
        if not complaint:
            return generated_harness.freeze(
                kernel, harness, checks=findings.passed, attempts=attempt,
                review="passed" if author.review else "none",
                configurations=findings.configurations)
    raise Refused(f"no usable harness after {1 + REPAIRS} attempts: {plain(complaint, 600)}",
                  where=kernel.source, fix="write kopt_harness.py yourself; kopt subagents harness "
                  "without --agent checks it")


def _written(kernel: KernelToBenchmark, author: HarnessAuthor, folder: Path, earlier: bytes,
             complaint: str, on_event: Callable[[str], None]) -> bytes:
    """Return the harness that the author wrote. Raises Refused if there is no usable one."""
    work = _work_folder(kernel, folder, earlier)
    on_event(f"{GENERATOR} works")
    try:
        ok, answer = author.work(work, GENERATOR, instructions(kernel, complaint), on_event)
    except KoptError as error:
        raise Refused(f"the worker failed: {error}") from None
    if not ok:
        raise Refused(f"the worker failed: {answer}")
    return generated_harness.read(work)


def _reviewed(kernel: KernelToBenchmark, author: HarnessAuthor, folder: Path, harness: bytes,
              findings: HarnessFindings, on_event: Callable[[str], None]) -> str:
    """Return the verifier's complaint or "". Raises Refused if it asks, or gives no verdict."""
    if not author.review:
        return ""
    on_event(f"{VERIFIER} reviews")
    work = _work_folder(kernel, folder, harness)
    results = "\n".join(f"- {name}: {result}" for name, result in findings.passed.items())
    rows = "\n".join(weights.label([*row], [*row.values()]) for row in findings.configurations)
    ok, answer = author.work(work, VERIFIER, "\n".join((
        f"# Review {NAME}", "", f"It checks and times {_name_of(kernel)}. kopt's checks:", "",
        results, "", "Its configurations:", "", fenced(rows, 8000), "", _traced_text(kernel))),
        on_event)
    verdicts = list(_VERDICT.finditer(answer)) if ok else []
    if not verdicts:
        raise Refused("the verifier gave no verdict" + ("" if ok else f": {plain(answer, 300)}"),
                      where=VERIFIER, fix="run it again, or --no-review")
    last = verdicts[-1]
    verdict, why = last[1], plain(
        answer[last.end():].partition("\n\n```")[0].strip(), 2000)  # commands follow
    if verdict == "ESCALATE":
        raise Refused(f"the verifier asks: {why}", where=VERIFIER,
                      fix="answer it in the project's own notes, or --no-review")
    return "" if verdict == "PASS" else f"the review found: {why}"


def instructions(kernel: KernelToBenchmark, complaint: str = "") -> str:
    """Return the generator's task; with a complaint, that of a repair."""
    parts = [f"# Write {NAME} for {_name_of(kernel)}", "",
             "This folder is a copy of the project. The kernel is unpatched.", "",
             _traced_text(kernel)]
    if complaint:
        parts += ["", "## Repair", "", f"The {NAME} in this folder, if there is one, is your last "
                  "attempt. kopt rejected it:", "", fenced(complaint, 4000)]
    return "\n".join(parts) + "\n"


def _traced_text(kernel: KernelToBenchmark) -> str:
    traced = kernel.traced
    if traced is None:
        return "No trace: the configurations are those of the project's callers and tests."
    lines = "\n".join(weights.label(traced.columns, shape.cells)
                      for shape in traced.shapes[:MOST_SHAPES])
    more = len(traced.shapes) - MOST_SHAPES
    return "\n".join((
        "## Traced configurations", "", f"A trace of the real program recorded these "
        f"{len(traced.shapes)} (columns {', '.join(traced.columns)}):", "", fenced(lines, 20_000),
        *((f"and {more} more", ) if more > 0 else ())))


def _name_of(kernel: KernelToBenchmark) -> str:
    return f"`{kernel.entry}` in `{kernel.source}`" if kernel.entry else f"`{kernel.source}`"


def _work_folder(kernel: KernelToBenchmark, folder: Path, harness: bytes) -> Path:
    """Return a fresh copy of the project for an agent, with the harness so far."""
    work = folder / "work"
    file_copy.remove(work)
    file_copy.copy_sources(kernel.project, work, skipped=(*NO_SOURCES, NAME))
    if harness:
        (work / NAME).write_bytes(harness)
    return work
