"""An oracle is kept for the next verdict without its earlier cases, and ends with its shelf."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.isolation import device_lock, raw_outputs
from harness.runners import kept_oracle, oracle_client
from harness.runners.kept_oracle import OracleShelf
from harness.runners.oracle_client import OracleError
from tests.support.judging.kept_oracles import CLASS, pid_of, started
from tests.support.programs.processes import until


@pytest.fixture
def shelf() -> Iterator[OracleShelf]:
    shelf = OracleShelf()
    yield shelf
    shelf.close()


def ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_next_verdict_gets_the_same_oracle_without_the_cases_of_the_last_verdict(
        tmp_path: Path, shelf: OracleShelf) -> None:
    with started(tmp_path, shelf) as first:
        pid, case = pid_of(first), first.make(CLASS, "normal")
        evidence = first.evidence
    assert shelf.holds_one
    with started(tmp_path, shelf) as second:
        assert pid_of(second) == pid
        assert not shelf.holds_one
        assert second.evidence == evidence
        with pytest.raises(OracleError, match=case.id):
            second.sensitivity(case, 0.01)
        assert second.make(CLASS, "normal").distribution == "normal"


def test_oracle_of_another_reference_ends(tmp_path: Path, shelf: OracleShelf) -> None:
    with started(tmp_path, shelf) as first:
        pid = pid_of(first)
    with started(tmp_path, shelf, factor=3) as second:
        assert pid_of(second) != pid
        until(lambda: ended(pid))


@pytest.mark.parametrize("end", [OracleShelf.clear, OracleShelf.close])
def test_waiting_oracle_ends_with_its_shelf(
        tmp_path: Path, shelf: OracleShelf, end: object) -> None:
    with started(tmp_path, shelf) as oracle:
        pid = pid_of(oracle)
    end(shelf)  # type: ignore[operator]
    until(lambda: ended(pid))


def test_oracle_that_died_while_it_waited_is_started_anew(
        tmp_path: Path, shelf: OracleShelf) -> None:
    with started(tmp_path, shelf) as oracle:
        pid = pid_of(oracle)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not shelf.holds_one)
    with started(tmp_path, shelf) as second:
        assert pid_of(second) != pid
        second.make(CLASS, "normal")


def test_unclaimed_oracle_ends_after_its_timeout(tmp_path: Path, shelf: OracleShelf,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_client, "KEPT_S", 0.01)
    with started(tmp_path, shelf) as oracle:
        pid = pid_of(oracle)
    until(lambda: ended(pid))
    assert not shelf.holds_one


def test_kept_oracle_holds_no_device_lock_until_the_next_verdict_passes_its_own(
        tmp_path: Path, shelf: OracleShelf) -> None:
    with device_lock.acquire("kept") as lock, started(tmp_path, shelf, lock=lock):
        pass
    assert shelf.holds_one
    until(lambda: device_lock.holder("kept") is None)
    with device_lock.acquire("kept") as lock:
        oracle = started(tmp_path, shelf, lock=lock)
    assert device_lock.holder("kept") is not None
    oracle.close()
    until(lambda: device_lock.holder("kept") is None)


def test_lock_of_a_verdict_that_follows_at_once_is_held(tmp_path: Path, shelf: OracleShelf) -> None:
    """The supervisor then reads two orders at once: to release a lock and to hold the next one."""
    with device_lock.acquire("kept") as lock, started(tmp_path, shelf, lock=lock) as first:
        supervisor = pid_of(first)
        os.kill(supervisor, signal.SIGSTOP)
    with device_lock.acquire("next") as lock:
        second = started(tmp_path, shelf, lock=lock)
    os.kill(supervisor, signal.SIGCONT)
    until(lambda: device_lock.holder("kept") is None)
    assert device_lock.holder("next") is not None
    second.close()


def test_output_of_the_reference_stays_with_its_verdict(tmp_path: Path, shelf: OracleShelf) -> None:
    for number in range(2):
        with raw_outputs.recording(str(tmp_path / f"outputs-{number}")), \
                started(tmp_path, shelf) as oracle:
            oracle.make(CLASS, "normal")
        [kept] = (tmp_path / f"outputs-{number}").glob("*oracle*")
        assert kept.read_text().startswith("doubled")


def test_output_of_the_reference_stays_with_its_verdict_also_if_the_supervisor_is_late(
        tmp_path: Path, shelf: OracleShelf) -> None:
    with raw_outputs.recording(str(tmp_path / "outputs")), started(tmp_path, shelf) as oracle:
        supervisor = pid_of(oracle)
        os.kill(supervisor, signal.SIGSTOP)
        oracle.make(CLASS, "normal")
        threading.Timer(0.2, os.kill, (supervisor, signal.SIGCONT)).start()
    [kept] = (tmp_path / "outputs").glob("*oracle*")
    assert kept.read_text().startswith("doubled")


def test_oracle_that_may_not_be_kept_or_has_failed_ends_with_its_verdict(
        tmp_path: Path, shelf: OracleShelf) -> None:
    with started(tmp_path, shelf, may_leave=lambda: False):
        pass
    assert not shelf.holds_one
    with started(tmp_path, shelf) as oracle:
        os.kill(pid_of(oracle), signal.SIGKILL)
        until(lambda: ended(pid_of(oracle)))
    assert not shelf.holds_one


def test_process_that_inherits_the_shelf_finds_the_oracle(
        tmp_path: Path, shelf: OracleShelf, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(tmp_path, shelf) as oracle:
        pid = pid_of(oracle)
    monkeypatch.setenv(kept_oracle.VARIABLE, shelf.variable)
    inherited = OracleShelf.inherited()
    assert inherited is not None
    with started(tmp_path, inherited) as second:
        assert pid_of(second) == pid
    assert shelf.holds_one
    inherited.close()
