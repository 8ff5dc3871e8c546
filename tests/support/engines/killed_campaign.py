"""A campaign that runs identically each time, so that a killed run can be compared with another."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.campaign import setup as campaigns_of
from engine.campaign.setup import Setup
from harness.formats import yaml_document
from tests.support import repos
from tests.support.benchmarks import benchmark_case
from tests.support.engines import clocked_host
from tests.support.paths import SUPPORT

HOST = SUPPORT / "engines/clocked_host.py"
BENCH = benchmark_case.BENCH.replace("* noise()", "* 1.0") \
    .replace("time.time()", "0").replace("rows.sort(key=lambda row: os.urandom(4))\n", "")
MANIFEST: dict[str, Any] = {
    **benchmark_case.MANIFEST, "approval": "auto", "max_iterations": 2,
    "representative_shapes": "all", "decision": {"alpha": 0.2, "looks": 4},
    "target": {**benchmark_case.MANIFEST["target"], "configs": ["n"], "core": ["n=32"]},
    "pool": {"slots": 1, "backends": ["inbox"]}}
RECORDS = ("performance.md", "results.tsv", "report.md", "BEST_COMMIT", "logs/optimize.md",
           "logs/performance_trend.md", "report.html", "rounds/**/*")
TIPS = "historical_experience/**/*"
_TIMES = re.compile(r"\b\d+(\.\d+)? (s|min|h)\b")
_WALL = re.compile(r'("wall_s": )[\d.e+-]+')
_PHASES = re.compile(r"(?<=phases: ).*")
"""Times of phases: another engine that continues the campaign adds its own."""


def create(root: Path, manifest: dict[str, Any] = MANIFEST) -> Setup:
    """Create the same campaign every time, down to its commit ids."""
    repos.project(root / "p", {**benchmark_case.FILES, "bench.py": BENCH,
                               "manifest.yaml": yaml_document.dump(manifest)})
    path = root / "p" / "manifest.yaml"
    with pytest.MonkeyPatch.context() as clock:
        clock.setattr(time, "time", lambda: clocked_host.AT)
        setup = campaigns_of.create(root / "w", path)
    for name, cost in (("a-slower", 130.0), ("b-faster", 80.0), ("c-fastest", 60.0)):
        benchmark_case.patch(path, setup.folder.inbox / f"{name}.patch",
                             kernel_py=benchmark_case.kernel(cost))
    return setup


def host(setup: Setup) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(HOST), str(setup.workspace), setup.id],
                            env={**os.environ, "PYTHONPATH": str(HOST.parents[2])},
                            start_new_session=True, stderr=subprocess.DEVNULL)


def is_killed(setup: Setup, step: str = "second-try.begun") -> bool:
    """Run a host; return whether it died at a failpoint, rather than ended."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KOPT_FAILPOINT", step)
        return host(setup).wait(120) == -signal.SIGKILL


def records(setup: Setup) -> dict[str, str]:
    """Return a campaign's record files without durations and values that depend on them.

    Commit ids depend on durations, as commits hold verdicts; so do the sizes of outputs.
    """
    folder, workspace, repo = setup.folder.path, setup.workspace, setup.repo
    commits = repo.log(repo.tip, repo.base)
    found = [path for place, patterns in ((folder, RECORDS), (workspace, (TIPS,)))
             for pattern in patterns for path in sorted(place.glob(pattern))
             if path.is_file() and path.parent.name != "artifacts"]
    return {str(path.relative_to(workspace)): _without_durations(path, commits).replace(
        str(workspace.resolve().parent), "") for path in found}


def _without_durations(path: Path, commits: list[str]) -> str:
    text = _PHASES.sub("-", _WALL.sub(r"\1-", _TIMES.sub("- s", path.read_text())))
    for n, commit in enumerate(commits):
        text = re.sub(f"{commit[:8]}[0-9a-f]*", f"commit {n}", text)
    return text
