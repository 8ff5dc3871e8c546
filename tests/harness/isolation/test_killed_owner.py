"""A killed owner, guard or supervisor leaves no process behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from harness.isolation import device_lock, guard
from harness.isolation.confinement import Confine
from harness.isolation.guard import Guarded
from tests.support.paths import ROOT
from tests.support.programs.guard_case import DAEMON, SLEEP, supervisors
from tests.support.programs.processes import (
    alive,
    kill,
    mark,
    marked,
    owner,
    python,
    resident,
    until,
)


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))


OWNER = """
import sys
from pathlib import Path
from harness.isolation import guard
from harness.isolation import device_lock as lock
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits
folder, marker, confine = sys.argv[1], sys.argv[2], sys.argv[3] == "confine"
with lock.acquire("cpu") as held:
    print("locked", flush=True)
    guard.run([sys.executable, "-I", "-S", "-c", %r, marker], cwd=Path(folder), lock=held,
              confine=Confine(writable=(folder,)) if confine else None)
""" % (DAEMON + "held = bytearray(b'1') * 300_000_000\n" + SLEEP)


@pytest.mark.parametrize("confine", ["confine", "open"])
def test_killed_owner_frees_the_lock_only_after_its_job_is_dead(
        confine: str, tmp_path: Path) -> None:
    marker = mark()
    with owner(OWNER, str(tmp_path), marker, confine) as process:
        assert until(lambda: len(marked(marker)) >= 3)  # the owner, the job, its daemon
        assert device_lock.holder("cpu") == process.pid
        guards = supervisors(process.pid)
        assert guards
        for pid in guards:
            os.kill(pid, signal.SIGSTOP)
        kill(process.pid)
        process.wait()
        assert device_lock.holder("cpu") is not None, "the lock died with its owner"
        for pid in guards:
            os.kill(pid, signal.SIGCONT)
        while device_lock.holder("cpu") is not None:
            pass
        assert marked(marker) == {}, "the lock was free while a process still ran"


def test_lock_passed_before_the_job_starts_is_held_to_its_end(tmp_path: Path) -> None:
    started = tmp_path / "started"
    held = device_lock.acquire("cpu")
    with Guarded(python(f"open({str(started)!r}, 'w'); {SLEEP}"), cwd=tmp_path,
                 env=guard.clean_env()) as guarded:
        guarded.hold(held)
        assert until(started.exists)
        held.release()
        assert device_lock.holder("cpu") is not None
        guarded.kill()
        guarded.wait()
    assert until(lambda: device_lock.holder("cpu") is None)


NESTED = """
import sys
from pathlib import Path
from harness.isolation import guard
from harness.isolation import device_lock as lock
folder, marker, depth = sys.argv[1], sys.argv[2], int(sys.argv[3])
if depth == 0:
    held = lock.acquire("cpu")
    guard.run([sys.executable, "-I", "-S", "-c", %r, marker + "-job"], cwd=Path(folder), lock=held)
else:
    env = guard.clean_env({"KOPT_LOCK_DIR": sys.argv[4], "PYTHONPATH": sys.argv[5]})
    guard.run([sys.executable, "-c", sys.argv[6], folder, marker, str(depth - 1), *sys.argv[4:]],
              cwd=Path(folder), env=env)
""" % (DAEMON + "held = bytearray(b'1') * 300_000_000\n" + SLEEP)


@pytest.mark.parametrize("victim", [
    "owner", pytest.param("inner supervisor", marks=pytest.mark.slow), "outer supervisor"])
def test_nested_guards_die_together(victim: str, tmp_path: Path) -> None:
    marker = mark()
    root = str(ROOT)
    with owner(NESTED, str(tmp_path), marker, "2", os.environ["KOPT_LOCK_DIR"], root,
               NESTED) as process:
        assert until(lambda: len(marked(marker)) >= 5)
        assert until(lambda: max(map(resident, marked(marker + "-job"))) > 300_000_000)
        jobs = marked(marker + "-job")
        if victim == "owner":
            kill(process.pid)
        else:
            chain = supervisors(process.pid)
            assert len(chain) == 3
            kill(chain[-1] if victim == "inner supervisor" else chain[0])
        assert until(lambda: device_lock.holder("cpu") is None)
        if victim == "owner":
            assert not [pid for pid in jobs if alive(pid)], "the lock was free too early"
        assert until(lambda: not [pid for pid in marked(marker) if pid != process.pid])
        process.wait(timeout=20)


@pytest.mark.parametrize("confine", [False, True])
def test_killed_supervisor_leaves_no_process(confine: bool, tmp_path: Path) -> None:
    marker = mark()
    with Guarded(python(SLEEP, marker), cwd=tmp_path, env=guard.clean_env(),
                 confine=Confine(writable=(str(tmp_path),)) if confine else None) as guarded:
        assert until(lambda: len(marked(marker)) == 1)
        kill(guarded.pid)
        outcome = guarded.wait()
    assert (outcome.ended, outcome.returncode) == ("killed", None)
    assert until(lambda: not marked(marker))
