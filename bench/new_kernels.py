"""Try `kopt new FILE:FUNCTION -- TEST` on a folder of kernels with tests; count correct verdicts.

    python bench/new_kernels.py FOLDER [--output TABLE.md] [--only PART] [--limit SECONDS]

A case is a folder with `what.txt` (FILE:FUNCTION and flags) and its test, test_*.py: run by pytest
if it imports pytest, else as a script. Each case is copied, and no file of it is edited.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """What one command gave; `why` is the reason where there is no correct verdict."""

    project: str
    name: str
    correct: bool
    reference: str
    seconds: float
    why: str = ""


def cases(folder: Path, only: str) -> Iterator[Path]:
    """Yield the folders with a what.txt whose path contains `only`."""
    for what in sorted(folder.rglob("what.txt")):
        if only in str(what.parent.relative_to(folder)):
            yield what.parent


def run(case: Path, limit_s: float) -> CaseResult:
    """Draft a task from a copy of a case, by one command."""
    [test] = sorted(case.glob("test_*.py"))[:1]
    program = [sys.executable, *(("-m", "pytest", "-q") if "import pytest" in test.read_text()
                                 else ()), test.name]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kopt-new-") as name:
        copy = Path(name) / case.name
        shutil.copytree(case, copy)
        command = [sys.executable, "-m", "kopt_tui", "new",
                   *(case / "what.txt").read_text().split(), "--project", ".", "--yes", "--json",
                   "--", *program]
        try:
            done = subprocess.run(
                command, cwd=copy, capture_output=True, text=True, check=False, timeout=limit_s,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (
                    str(ROOT), os.environ.get("PYTHONPATH"))))})
            answer = json.loads(done.stdout.strip().splitlines()[-1] if done.stdout.count("\n") < 2
                                else done.stdout)
        except subprocess.TimeoutExpired:
            answer = {"problem": f"takes more than {limit_s:.0f} s"}
        except (ValueError, IndexError):
            answer = {"problem": done.stderr.strip()[-300:]}
    verdict = answer.get("first_verdict") or {}
    why = answer.get("problem") or verdict.get("not_judged") or \
        " ".join(filter(None, [answer.get("error", {}).get("what"),
                               answer.get("error", {}).get("fix")]))
    correct = bool(verdict.get("correct"))
    return CaseResult(project=case.parent.name, name=case.name, correct=correct,
                reference=answer.get("reference", ""), seconds=time.monotonic() - began,
                why="" if correct else why)


def table(results: Sequence[CaseResult], device: str) -> str:
    """Return the results as Markdown."""
    right = [case for case in results if case.correct]
    found = [case for case in right if case.reference != "baseline"]
    middle = sorted(case.seconds for case in results)[len(results) // 2]
    rows = [f"| {case.project} | {case.name} | {'correct' if case.correct else 'no'} | "
            f"{case.reference.partition('/')[2] or case.reference} | {case.seconds:.0f} | "
            f"{' '.join(case.why.replace('|', '/').split())[:160]} |" for case in results]
    return "\n".join([
        f"{len(right)} of {len(results)} kernels of {len({case.project for case in results})} "
        f"projects got a first correct verdict by one command on {device}; {len(found)} of them "
        f"with a reference found in the test. Median {middle:.0f} s.", "",
        "| project | kernel | first verdict | reference | s | why not |",
        "|---|---|---|---|---|---|", *rows, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, default=None)
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=LIMIT_S)
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--budget", type=float, default=None,
                        help="seconds after which no further case starts")
    args = parser.parse_args()
    from harness.devices import inventory

    results: list[CaseResult] = []
    began = time.monotonic()

    def attempt(case: Path) -> None:
        if args.budget is not None and time.monotonic() - began > args.budget:
            return
        results.append(run(case, args.limit))
        print(results[-1], flush=True)
        if args.output is not None:
            args.output.write_text(table(sorted(results, key=lambda done: (
                done.project, done.name)), inventory.find("auto").name), encoding="utf-8")

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(attempt, cases(args.folder, args.only)))


if __name__ == "__main__":
    main()
