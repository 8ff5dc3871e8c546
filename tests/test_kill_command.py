"""`kill -9` at any moment of a command campaign: it ends with the records of an undisturbed one.

The benchmark says the same of the same source always, and the host's wall clock stands still.
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

import campaigns
import clocked_host
import pytest
import reported_case
import repos

from engine import campaign as campaigns_of
from engine.campaign import Setup
from harness import yamldoc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
HOST = Path(__file__).parent / "clocked_host.py"
SEED, BUDGET_S = 20261122, 1500.0
BENCH = reported_case.BENCH.replace("random.uniform(0.999, 1.001)", "1.0") \
    .replace("time.time()", "0").replace("random.shuffle(rows)\n", "")
MANIFEST: dict[str, Any] = {
    **reported_case.MANIFEST, "approval": "auto", "max_iterations": 2,
    "representative_shapes": "all", "decision": {"alpha": 0.2, "looks": 4},
    "target": {**reported_case.MANIFEST["target"], "configs": ["n"], "core": ["n=32"]},
    "pool": {"slots": 1, "backends": ["inbox"]}}
RECORDS = ("performance.md", "results.tsv", "report.md", "BEST_COMMIT", "logs/optimize.md",
           "logs/performance_trend.md", "rounds/*/summary.md")
_TIMES = re.compile(r"\b\d+(\.\d+)? (s|min|h)\b")


def create(root: Path) -> Setup:
    """Make the same campaign as ever: its commits have the same names too."""
    repos.project(root / "p", {**reported_case.FILES, "bench.py": BENCH,
                               "manifest.yaml": yamldoc.dump(MANIFEST)})
    manifest = root / "p" / "manifest.yaml"
    with pytest.MonkeyPatch.context() as clock:
        clock.setattr(time, "time", lambda: clocked_host.AT)
        setup = campaigns_of.create(root / "w", manifest)
    for name, cost in (("a-slower", 130.0), ("b-faster", 80.0), ("c-fastest", 60.0)):
        reported_case.patch(manifest, setup.folder.inbox / f"{name}.patch",
                            kernel_py=reported_case.kernel(cost))
    return setup


def host(setup: Setup) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(HOST), str(setup.workspace), setup.id],
                            env={**os.environ, "PYTHONPATH": str(HOST.parents[1])},
                            start_new_session=True, stderr=subprocess.DEVNULL)


def records(setup: Setup) -> dict[str, str]:
    """Return what people read of a campaign, but for how long anything took."""
    folder, root = setup.folder.path, str(setup.workspace.resolve().parent)
    return {str(path.relative_to(folder)): _TIMES.sub("- s", path.read_text()).replace(root, "")
            for pattern in RECORDS for path in sorted(folder.glob(pattern))}


@pytest.mark.parametrize("wanted", [50])
def test_records_are_those_of_an_undisturbed_run(wanted: int, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    undisturbed = create(tmp_path / "undisturbed")
    began = time.monotonic()
    assert host(undisturbed).wait(600) == 0
    whole_s = time.monotonic() - began
    expected = records(undisturbed)
    assert "| keep |" in expected["performance.md"] and len(expected) >= 8
    chance, kills, number = random.Random(SEED), 0, 0
    while kills < wanted and time.monotonic() - began < BUDGET_S:
        number += 1
        setup = create(tmp_path / str(number))
        while campaigns.campaign(setup).state not in ("finished", "failed"):
            running = host(setup)
            left = wanted - kills
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(chance.uniform(0.5, whole_s / 2) if left > 0 else 600)
            if running.poll() is None:
                running.send_signal(signal.SIGKILL)
                running.wait(30)
                kills += 1
                campaigns.until(lambda: not campaigns.processes(setup.workspace),  # noqa: B023
                                30.0, "nothing is left behind")
        found = records(setup)
        assert found.keys() == expected.keys()
        for name, text in expected.items():
            assert found[name] == text, f"{name} after {kills} kills"
    print(f"{kills} kills over {number} campaigns in {time.monotonic() - began:.0f} s")
    assert kills >= 10
