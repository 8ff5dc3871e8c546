"""`kill -9` of the host loses nothing recorded, leaves nothing behind and repeats nothing."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.campaign.setup import Setup
from engine.run import host
from harness.isolation import device_lock
from tests.support.engines import campaigns
from tests.support.engines.repair_case import is_killed

BUDGET_S = 60.0
KILLS = 30
SEED = 20261120


@pytest.fixture
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))


def recorded(setup: Setup) -> dict[str, Sequence[object]]:
    """Return the records that must never be lost: events, verdicts, decisions, candidates."""
    with campaigns.reading(setup) as reader:
        return {
            "events": [event.seq for event in reader.events(campaign=setup.id, limit=100_000)],
            "verdicts": sorted((row.id, row.body) for row in reader.verdicts(setup.id)),
            "decisions": sorted((row.id, row.kind) for row in reader.decisions(setup.id)),
            "candidates": sorted(candidate.id for candidate in reader.candidates(setup.id)),
        }


def kill(setup: Setup, pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):  # it may just have ended
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    left: list[str] = []

    def gone() -> bool:
        nonlocal left
        left = campaigns.processes(setup.workspace)
        return not left

    try:
        campaigns.until(gone, 30.0)
    except AssertionError:
        raise AssertionError(f"left behind: {left}") from None
    with device_lock.acquire("cpu", timeout_s=30.0):
        pass


@pytest.mark.slow  # a test of one kill: test_run_survives_its_terminal_and_can_be_controlled
def test_repeatedly_killed_campaign_finishes(tmp_path: Path, own_lock: None) -> None:
    """Every kill comes some events later, so that kills hit all parts of the campaign."""
    chance = random.Random(SEED)
    kills = number = kept = 0
    began = time.monotonic()
    while kills < KILLS and time.monotonic() - began < BUDGET_S:
        number += 1
        setup = campaigns.create(tmp_path / str(number), pool={"slots": 2, "trials": 2})
        campaigns.hand_in(setup)
        before = recorded(setup)
        while kills < KILLS and campaigns.campaign(setup).state not in ("finished", "failed"):
            pid = host.spawn(setup.workspace, setup.id)
            assert campaigns.processes(setup.workspace), "no process of the campaign was found"
            later = len(before["events"]) + chance.randrange(8)
            campaigns.until(lambda: len(recorded(setup)["events"]) >= later or  # noqa: B023
                            host.owner(setup.workspace, setup.id) is None)  # noqa: B023
            time.sleep(chance.uniform(0.0, 1.0))
            if host.owner(setup.workspace, setup.id) is None:
                break
            kill(setup, pid)
            kills += 1
            now = recorded(setup)
            for name, rows in before.items():
                assert [row for row in rows if row not in now[name]] == [], name
            before = now
        engine = campaigns.run(setup)
        assert engine.error is None
        assert campaigns.campaign(setup).state == "finished", campaigns.campaign(setup).reason
        kept += len(campaigns.consistent(setup))
        assert campaigns.candidates(setup, "captured", "verified", "keeping") == []
        check_records(setup)
    print(f"{kills} kills over {number} campaigns in {time.monotonic() - began:.0f} s")
    assert kills >= KILLS // 2 and kept >= 1


def check_records(setup: Setup) -> None:
    """Check that the records of an uninterrupted campaign exist, each once."""
    with campaigns.reading(setup) as reader:
        purposes = [row.purpose for row in reader.verdicts(setup.id)]
        keeps = [row.candidate for row in reader.decisions(setup.id) if row.kind == "keep"]
        assert all(round.ended_at for round in reader.rounds(setup.id))
    assert purposes.count("baseline") == 1
    assert len(keeps) == len(set(keeps))
    assert (campaigns.campaign(setup).speedup is None) == (not keeps)
    text = setup.folder.performance.read_text()
    assert text.count("| baseline |") == 1
    assert text.count("| keep |") == len(keeps)


@pytest.mark.slow
@pytest.mark.parametrize("step", [  # test_two_phase_keep tests all steps
    "keep.keeping", pytest.param("keep.kept", marks=pytest.mark.slow)])
def test_host_killed_during_keep_resumes_without_loss(tmp_path: Path, step: str) -> None:
    setup = campaigns.create_with_patch(tmp_path)  # nothing else is left to do after the resume
    assert is_killed(setup, step), campaigns.slots(setup)
    before = recorded(setup)
    engine = campaigns.run(setup)
    assert engine.error is None
    now = recorded(setup)
    assert all(row in now[name] for name, rows in before.items() for row in rows)
    assert len(campaigns.consistent(setup)) >= 1
    check_records(setup)
