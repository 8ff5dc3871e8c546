"""Make tasks of folders with PyTorch modules, and judge each module against itself.

    python bench/kernelbench_batch.py FOLDER... [--no-time] [--budget SECONDS] [--output TABLE.md]

The folders (such as KernelBench's level1) are copied and `kopt new --each` runs on the copies. Each
verdict is the first one of a new user: the unchanged module, timed unless --no-time. The table
says how many are correct, how long drafting and the verdict took, and why others are not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from engine.run.one_shot import OneShot, OneShotCandidate
from engine.verify import harness_client, reference_forms
from harness.errors import KoptError
from harness.formats.quantities import latency
from harness.requests import EvaluateRequest
from harness.verdict import Verdict

ALPHA = 0.001


@dataclass(frozen=True, kw_only=True)
class ProblemResult:
    """The first verdict on one problem; `why` says why it is not correct."""

    level: str
    problem: str
    correct: bool
    seconds: float
    latency_us: float | None
    why: str = ""


def judge(manifest: Path, *, time_it: bool, compiled: bool = False) -> ProblemResult:
    """Return the verdict on the unchanged module of a manifest, or on it under torch.compile."""
    began = time.monotonic()
    try:
        with OneShot(manifest) as one_shot:
            judged = one_shot.judged
            own = one_shot.repo.read(judged.base_tree, judged.target.source)
            request = one_shot.request(
                OneShotCandidate(source=reference_forms.compiled_source(own) if compiled else None),
                alpha=ALPHA, effort="quick")
            assert isinstance(request, EvaluateRequest)
            settings = replace(request.settings, always_time=time_it)
            verdict: Verdict | None = harness_client.evaluate(replace(request, settings=settings))
        why = ""
    except KoptError as error:
        verdict, why = None, str(error)
    if verdict is not None and not verdict.correct:
        why = verdict.rejected_reason or "; ".join(row.note for row in verdict.rows)
    return ProblemResult(
        level=manifest.parents[2].name, why=why,
        problem=manifest.parent.name + (" under torch.compile" if compiled else ""),
        correct=verdict is not None and verdict.valid and bool(verdict.correct),
        seconds=time.monotonic() - began,
        latency_us=None if verdict is None else verdict.latency_us)


def draft(folder: Path, *sizes: str) -> float:
    """Run `kopt new --each` on a folder; return its seconds."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "kopt_tui", "new", str(folder), "--each", "--json",
                           *sizes], capture_output=True, text=True, check=False)
    for result in json.loads(done.stdout or "[]"):
        if result["result"] == "failed":
            print(f"{result['file']}: no task: {result['detail']}", flush=True)
    return time.monotonic() - began


def table(results: list[ProblemResult], drafted: dict[str, tuple[int, float]]) -> str:
    lines = [f"{name}: {count} tasks in {seconds:.0f} s" for name, (count, seconds)
             in drafted.items()]
    right = sum(result.correct for result in results)
    lines += ["", f"{right} of {len(results)} first verdicts are correct.", "",
              "| level | problem | first verdict | seconds | latency | |",
              "|---|---|---|---|---|---|"]
    lines += [f"| {each.level} | {each.problem} | {'correct' if each.correct else 'no'} | "
              f"{each.seconds:.0f} | {latency(each.latency_us)} | {each.why[:160]} |"
              for each in results]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--no-time", dest="time_it", action="store_false")
    parser.add_argument("--compile", action="store_true", help="judge torch.compile as well")
    parser.add_argument("--sizes", choices=("full", "small"), default=None)
    parser.add_argument("--budget", type=float, default=1e9,
                        help="seconds after which no further verdict starts")
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    began = time.monotonic()
    results: list[ProblemResult] = []
    drafted: dict[str, tuple[int, float]] = {}
    with tempfile.TemporaryDirectory(prefix="kopt-batch-") as scratch:
        manifests: list[Path] = []
        for folder in args.folders:
            copy = Path(shutil.copytree(folder, Path(scratch) / folder.name))
            seconds = draft(copy, *(("--sizes", args.sizes) if args.sizes else ()))
            own = sorted(copy.glob("kopt_task/*/manifest.yaml"))
            manifests += own
            drafted[folder.name] = len(own), seconds
        for manifest in manifests:
            if time.monotonic() - began > args.budget:
                print(f"no time left for {manifest.parent.name}", flush=True)
                continue
            results.append(judge(manifest, time_it=args.time_it))
            print(results[-1], flush=True)
            if args.compile:
                results.append(judge(manifest, time_it=True, compiled=True))
                print(results[-1], flush=True)
    text = table(results, drafted)
    print(text)
    if args.output is not None:
        args.output.write_text(text)
    return 0 if results and all(result.correct for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
