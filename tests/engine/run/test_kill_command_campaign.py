"""A command campaign that `kill -9` interrupts ends with the records of an undisturbed one.

The benchmark always reports the same for the same source, and the host's clock stands still.
"""

from __future__ import annotations

import contextlib
import os
import random
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
from tests.support import benchmark_case, campaigns, clocked_host, repos
from tests.support.paths import SUPPORT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
HOST = SUPPORT / "clocked_host.py"
SEED = 20261122
BENCH = benchmark_case.BENCH.replace("random.uniform(0.999, 1.001)", "1.0") \
    .replace("time.time()", "0").replace("random.shuffle(rows)\n", "")
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
ENDED = ("finished", "failed")


def create(root: Path) -> Setup:
    """Create the same campaign every time, down to its commit ids."""
    repos.project(root / "p", {**benchmark_case.FILES, "bench.py": BENCH,
                               "manifest.yaml": yaml_document.dump(MANIFEST)})
    manifest = root / "p" / "manifest.yaml"
    with pytest.MonkeyPatch.context() as clock:
        clock.setattr(time, "time", lambda: clocked_host.AT)
        setup = campaigns_of.create(root / "w", manifest)
    for name, cost in (("a-slower", 130.0), ("b-faster", 80.0), ("c-fastest", 60.0)):
        benchmark_case.patch(manifest, setup.folder.inbox / f"{name}.patch",
                            kernel_py=benchmark_case.kernel(cost))
    return setup


def host(setup: Setup) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(HOST), str(setup.workspace), setup.id],
                            env={**os.environ, "PYTHONPATH": str(HOST.parents[2])},
                            start_new_session=True, stderr=subprocess.DEVNULL)


def records(setup: Setup) -> dict[str, str]:
    """Return the record files of a campaign without durations."""
    folder, workspace = setup.folder.path, setup.workspace
    found = [path for place, patterns in ((folder, RECORDS), (workspace, (TIPS,)))
             for pattern in patterns for path in sorted(place.glob(pattern)) if path.is_file()]
    return {str(path.relative_to(workspace)): _said(path).replace(
        str(workspace.resolve().parent), "") for path in found}


def _said(path: Path) -> str:
    return _WALL.sub(r"\1-", _TIMES.sub("- s", path.read_text()))


@pytest.mark.parametrize("wanted", [50])
def test_records_are_those_of_an_undisturbed_run(wanted: int, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    undisturbed = create(tmp_path / "undisturbed")
    began = time.monotonic()
    assert host(undisturbed).wait(600) == 0
    whole_s = time.monotonic() - began
    expected = records(undisturbed)
    assert "| keep |" in expected[f"{undisturbed.id}/performance.md"]
    for what, least in {"summary.md": 2, "report.html": 1, "tips.md": 1, "kernel_snapshot/": 2,
                        ".patch": 3, ".verdict.json": 3}.items():
        assert sum(what in name for name in expected) >= least, (what, sorted(expected))
    chance, kills, number = random.Random(SEED), 0, 0
    while kills < wanted:
        number += 1
        setup = create(tmp_path / str(number))
        while campaigns.campaign(setup).state not in ENDED:
            running = host(setup)
            left = wanted - kills
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(chance.uniform(0.5, whole_s / 2) if left > 0 else 600)
            if running.poll() is None:
                running.send_signal(signal.SIGKILL)
                running.wait(30)
                kills += campaigns.campaign(setup).state not in ENDED  # else the kill came too late
                campaigns.until(lambda: not campaigns.processes(setup.workspace),  # noqa: B023
                                30.0, "nothing is left behind")
        found = records(setup)
        assert found.keys() == expected.keys()
        for name, text in expected.items():
            assert found[name] == text, f"{name} after {kills} kills"
    print(f"{kills} kills over {number} campaigns in {time.monotonic() - began:.0f} s")
    assert kills == wanted
