"""A command campaign that `kill -9` interrupts ends with the records of an undisturbed one.

The benchmark always reports the same for the same source, and the host's clock is fixed.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.engines import campaigns
from tests.support.engines.killed_campaign import create, host, is_killed, records

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
SEED = 20261122
ENDED = ("finished", "failed")


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


def test_campaign_has_ended_only_if_its_report_is_written(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    setup = create(tmp_path)
    assert is_killed(setup, "stop.recorded")
    assert campaigns.campaign(setup).state not in ENDED
    assert host(setup).wait(600) == 0
    assert campaigns.campaign(setup).state == "finished"
    assert setup.folder.page.is_file()
    with campaigns.reading(setup) as reader:
        assert len(reader.events_of(setup.id, "campaign.stop")) == 1
