"""Who works on a card: kopts known to each other by pid, and the strangers among its processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.devices.monitoring import foreign_processes, tenants
from harness.devices.monitoring.tenants import StrangerDetector
from tests.support.processes import kill, owner, until

STRANGER = os.getppid()
NOBODY = 1 << 23
TENANT = """
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
    monkeypatch.setattr(foreign_processes, "in_first_namespace", lambda: False)
    return tmp_path / "locks"


@contextmanager
def tenant() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Yield another kopt on the card, and its runner's pid."""
    with owner(TENANT) as process:
        assert process.stdout is not None
        runner = int(process.stdout.readline())
        try:
            yield process, runner
        finally:
            process.kill()
            kill(runner)


def test_a_tenant_is_seen_by_others_and_gone_with_its_block() -> None:
    assert not tenants.is_in_use("gpu-24")
    with tenants.registered("gpu-24"), tenants.registered("gpu-24"):
        assert tenants.is_in_use("gpu-24")
        assert tenants.registered_pids("gpu-24") == {os.getpid()}
    assert not tenants.is_in_use("gpu-24")


def test_tenants_are_known_by_pid_until_they_are_gone() -> None:
    with tenant() as (other, _), tenants.registered("gpu-1"):
        assert tenants.registered_pids("gpu-1") == {other.pid, os.getpid()}
        other.kill()
        other.wait()
        assert tenants.registered_pids("gpu-1") == {os.getpid()}


def test_the_next_first_tenant_forgets_who_was_there_before(locks: Path) -> None:
    with tenant():
        pass
    assert until(lambda: not tenants.is_in_use("gpu-1"))
    with tenants.registered("gpu-1"):
        assert len((locks / "gpu-1.tenants").read_text().splitlines()) == 1


def test_a_pid_of_another_namespace_tells_nothing(locks: Path) -> None:
    with tenants.registered("gpu-1"):
        with (locks / "gpu-1.tenants").open("a") as file:
            file.write("no line\n-1 2\n7 7 7\n")
        assert tenants.registered_pids("gpu-1") is None
        near = StrangerDetector("gpu-1")
        assert near.strangers([os.getpid(), STRANGER]) == set()


def test_strangers_are_neither_ours_nor_a_tenants() -> None:
    with tenant() as (other, runner), tenants.registered("gpu-1"):
        near = StrangerDetector("gpu-1")
        assert near.strangers([runner, other.pid, os.getpid()]) == set()
        assert near.strangers([runner, STRANGER, NOBODY, 0]) == {STRANGER}


def test_pids_tell_who_is_a_stranger_once_one_of_ours_was_listed(
        monkeypatch: pytest.MonkeyPatch) -> None:
    near = StrangerDetector("gpu-1")
    with tenants.registered("gpu-1"):
        assert near.strangers([STRANGER]) == set(), "it may be the host's name for one of ours"
        assert near.strangers([os.getpid()]) == set()
        assert near.strangers([STRANGER]) == {STRANGER}
        other = StrangerDetector("gpu-1")
        monkeypatch.setattr(foreign_processes, "in_first_namespace", lambda: True)
        assert other.strangers([STRANGER, NOBODY]) == {STRANGER, NOBODY}


@pytest.mark.parametrize("know", [tenants.is_in_use, tenants.registered_pids])
def test_tenants_outlive_a_cleaner_of_old_files(know: Callable[[str], object],
                                                locks: Path) -> None:
    """Whoever came before the cleaner is not seen any more: looked at as anybody else."""
    with tenants.registered("gpu-1"):
        (locks / "gpu-1.tenants").unlink()
        with tenants.registered("gpu-1"):
            assert know("gpu-1")
