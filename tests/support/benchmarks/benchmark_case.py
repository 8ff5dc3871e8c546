"""A small project whose own benchmark writes a CSV, judged by the real harness."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.benchmark.runs.command_session import Progress
from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric
from harness.benchmark.spec.validate import check
from harness.benchmark.verdict.benchmark_verdict import evaluate
from harness.benchmark.verdict.confirm_gain import Confirm, confirm_by_kernel_time
from harness.devices import inventory
from harness.devices.device import Device
from harness.formats import yaml_document
from harness.settings import Settings, Trees
from harness.timing.plan import Plan
from harness.verdict import Verdict
from tests.support import repos

RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
os.environ.setdefault("KOPT_LOCK_DIR", f"/tmp/kopt-test-locks-{RUN}")  # separate from other runs

KERNEL = "COST = 100.0\n\ndef err(m):\n    return 0\n"
"""The file that a candidate may change; the benchmark reports its COST, with some noise."""
PARTLY = """\
class Cost:
    def __mul__(self, m):
        return 100.0 * m * (0.5 if m == 256 else 1.0)
COST = Cost()
def err(m):
    return 0
"""
"""A kernel that takes half the time in one row, m=256."""
BENCH = """\
import os, sys, time
from _csv import writer  # csv and random import much, and this program starts by the hundred
import kernel

SHAPES = [(64, 32), (128, 32), (128, 64), (256, 64)]
QUICK = SHAPES[:2]

def noise():
    return 0.999 + 0.002 * int.from_bytes(os.urandom(4), "little") / 2**32

rows = []
for m, n in QUICK if "--quick" in sys.argv else SHAPES:
    cost = kernel.COST * m * noise()
    back = cost * 2 * noise()
    rows.append({"m": m, "n": n, "dtype": "fp16", "at": time.time(), "err": kernel.err(m),
                 "fwd_us": f"{cost:.4f}", "bwd_us": f"{back:.4f}"})
rows.sort(key=lambda row: os.urandom(4))
rows = getattr(kernel, "spoil", lambda rows: rows)(rows)
if rows is not None:
    with open("bench.csv", "w", newline="") as file:
        names = list(dict.fromkeys(key for row in rows for key in row)) or [
            "m", "n", "dtype", "at", "err", "fwd_us", "bwd_us"]
        writer(file).writerows([names, *([row.get(name, "") for name in names] for row in rows)])
getattr(kernel, "after", lambda: None)()
"""
FILES = {"kernel.py": KERNEL, "bench.py": BENCH}
TARGET = CommandTarget(op="norm", command="python bench.py", csv="bench.csv",
                       check=CheckColumn(column="err", rule="== 0"),
                       metrics=(Metric(name="fwd_us"), Metric(name="bwd_us")), timeout_s=60.0)
PLAN = Plan(looks=(3,), alpha=0.05)
MANIFEST: dict[str, Any] = {
    "target_op": "norm", "benchmark_command": "python bench.py", "edit": ["kernel.py"],
    "target": {"kind": "command", "csv": "bench.csv", "check": "err == 0",
               "metrics": ["fwd_us", "bwd_us"]},
    "gpu": {"device": "cpu"}, "budget": {"pairs": 3}}


def kernel(cost: float = 100.0, more: str = "") -> str:
    """Return a kernel of some cost; `more` is code after it."""
    return KERNEL.replace("100.0", repr(cost)) + more


def target(**fields: Any) -> CommandTarget:
    made = replace(TARGET, **fields)
    check(made)
    return made


def judge(folder: Path, candidate: str, *, incumbent: str = KERNEL,
          files: dict[str, str] | None = None, wanted: CommandTarget = TARGET,
          device: Device | None = None, confirm: Confirm = confirm_by_kernel_time,
          cancel: threading.Event | None = None, progress: Progress | None = None,
          **settings: Any) -> Verdict:
    """Evaluate a candidate's kernel against the incumbent's."""
    trees = {}
    for side, source in (("candidate", candidate), ("incumbent", incumbent)):
        trees[side] = folder / side
        trees[side].mkdir(parents=True)
        for name, text in {**FILES, **(files or {}), "kernel.py": source}.items():
            (trees[side] / name).write_text(text)
    given: dict[str, Any] = {"scratch": str(folder / "scratch"), "plan": PLAN}
    return evaluate(wanted, Trees(candidate=str(trees["candidate"]),
                                  incumbent=str(trees["incumbent"]),
                                  reference=str(trees["incumbent"])),
                    device or inventory.find("cpu"), Settings(**(given | settings)),
                    confirm=confirm, cancel=cancel, progress=progress)


def project(path: Path, files: Mapping[str, str] | None = None, **fields: Any) -> Path:
    """Make a repository with a manifest and return the manifest's path."""
    repos.project(path, {**FILES, **(files or {}),
                         "manifest.yaml": yaml_document.dump({**MANIFEST, **fields})})
    return path / "manifest.yaml"


def one_round(path: Path, files: Mapping[str, str] | None = None, **fields: Any) -> Path:
    """Make a repository whose campaign has one round for patches that are handed in."""
    return project(path, files, **{"approval": "auto", "max_iterations": 1, "pool": {
        "slots": 1, "backends": ["inbox"]}, "decision": {"alpha": 0.2, "looks": 4}, **fields})


def patch(manifest: Path, path: Path, **files: str) -> Path:
    """Write a patch that changes files of a project; `_` in a file's name stands for `.`."""
    for name, text in files.items():
        (manifest.parent / name.replace("_", ".")).write_text(text)
    path.write_text(repos.git(manifest.parent, "diff") + "\n")
    repos.git(manifest.parent, "checkout", "-q", ".")
    return path
