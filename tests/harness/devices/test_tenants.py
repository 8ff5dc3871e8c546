"""Users of a card are registered by pid; processes that belong to none of them are strangers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.devices.monitoring import tenants
from harness.devices.monitoring.tenants import StrangerDetector
from tests.support.programs.processes import kill, owner, until

STRANGER = os.getppid()
UNUSED_PID = 1 << 23
OTHER_KOPT = """
import subprocess, sys, time
from harness.devices.monitoring import tenants
with tenants.registered("gpu-1"):
    runner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(runner.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setattr(tenants, "in_first_namespace", lambda: False)
    return tmp_path / "locks"


@contextmanager
def registered_kopt() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Yield another kopt registered on the card, and the pid of its runner."""
    with owner(OTHER_KOPT) as process:
        assert process.stdout is not None
        runner = int(process.stdout.readline())
        try:
            yield process, runner
        finally:
            process.kill()
            kill(runner)


def test_device_is_in_use_while_a_user_is_registered() -> None:
    assert not tenants.is_in_use("gpu-24")
    with tenants.registered("gpu-24"), tenants.registered("gpu-24"):
        assert tenants.is_in_use("gpu-24")
        assert tenants.registered_pids("gpu-24") == {os.getpid()}
    assert not tenants.is_in_use("gpu-24")


def test_registered_pids_are_those_of_living_users() -> None:
    with registered_kopt() as (other, _), tenants.registered("gpu-1"):
        assert tenants.registered_pids("gpu-1") == {other.pid, os.getpid()}
        other.kill()
        other.wait()
        assert tenants.registered_pids("gpu-1") == {os.getpid()}


def test_first_user_empties_the_file_of_former_users(locks: Path) -> None:
    with registered_kopt():
        pass
    assert until(lambda: not tenants.is_in_use("gpu-1"))
    with tenants.registered("gpu-1"):
        assert len((locks / "gpu-1.tenants").read_text().splitlines()) == 1


def test_user_of_another_pid_namespace_hides_all_strangers(locks: Path) -> None:
    with tenants.registered("gpu-1"):
        with (locks / "gpu-1.tenants").open("a") as file:
            file.write("no line\n-1 2\n7 7 7\n")
        assert tenants.registered_pids("gpu-1") is None
        detector = StrangerDetector("gpu-1")
        assert detector.strangers([os.getpid(), STRANGER]) == set()


def test_strangers_are_processes_that_no_kopt_started() -> None:
    with registered_kopt() as (other, runner), tenants.registered("gpu-1"):
        detector = StrangerDetector("gpu-1")
        assert detector.strangers([runner, other.pid, os.getpid()]) == set()
        assert detector.strangers([runner, STRANGER, UNUSED_PID, 0]) == {STRANGER}


def test_strangers_are_found_only_after_one_of_our_pids_was_listed(
        monkeypatch: pytest.MonkeyPatch) -> None:
    detector = StrangerDetector("gpu-1")
    with tenants.registered("gpu-1"):
        assert detector.strangers([STRANGER]) == set(), "may be our process by the host's pid"
        assert detector.strangers([os.getpid()]) == set()
        assert detector.strangers([STRANGER]) == {STRANGER}
        other = StrangerDetector("gpu-1")
        monkeypatch.setattr(tenants, "in_first_namespace", lambda: True)
        assert other.strangers([STRANGER, UNUSED_PID]) == {STRANGER, UNUSED_PID}


@pytest.mark.parametrize("query", [tenants.is_in_use, tenants.registered_pids])
def test_user_registers_again_after_the_file_was_removed(query: Callable[[str], object],
                                                locks: Path) -> None:
    """A user that is registered in the removed file counts as any other process."""
    with tenants.registered("gpu-1"):
        (locks / "gpu-1.tenants").unlink()
        with tenants.registered("gpu-1"):
            assert query("gpu-1")
