"""A zygote ends with its owner; a process inherits only a zygote of the kind that it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.verify import harness_client
from harness.errors import EnvironmentFault
from harness.isolation import device_lock
from harness.isolation.zygote_client import (
    VARIABLE,
    WarmStart,
    Zygote,
)
from tests.support.paths import ROOT
from tests.support.programs.processes import alive, kill, until
from tests.support.programs.zygote_case import kind, ready, runner


def test_dead_zygote_is_started_again() -> None:
    warm = WarmStart(kind())
    first = warm.zygote()
    assert first is not None and first is warm.zygote()
    assert first._process is not None
    kill(first._process.pid)
    assert until(lambda: not first.alive)
    assert warm.zygote() is not first
    warm.close()
    assert WarmStart(None).zygote() is None


OWNER = """
import os, sys, time
from pathlib import Path
from harness.isolation.guard import clean_env
from harness.isolation.process_outcome import Limits
from harness.child.memory.host_memory import HostMemory
from harness.compile.place import Place, kind_of
from harness.isolation.rpc import Peer
from harness.isolation.zygote_client import Zygote
zygote = Zygote.start(kind_of(Place(device="cpu", scratch=""), "python"))
peer = Peer("run.runner", cwd=Path(sys.argv[1]), limits=Limits(), env=clean_env(), zygote=zygote)
peer.ask("ready", language="python", device="cpu", interpret=False)
print(zygote._process.pid, peer._guarded.pid, flush=True)
time.sleep(600)
"""


def test_killing_the_owner_ends_its_zygote_and_the_forks(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], cwd=ROOT,
                          stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 2 and all(alive(pid) for pid in pids)
        kill(owner.pid)
        assert until(lambda: not any(alive(pid) for pid in pids))


INHERITING = """
import sys
from harness.child.memory.host_memory import HostMemory
from harness.compile.place import Place, kind_of
from harness.isolation.zygote_client import Zygote
for language in ("python", "triton"):
    zygote = Zygote.inherited(kind_of(Place(device="cpu", scratch=""), language))
    print(language, zygote is not None)
"""


def test_process_inherits_only_a_zygote_of_the_kind_that_it_needs(zygote: Zygote) -> None:
    process = subprocess.run([sys.executable, "-c", INHERITING], cwd=ROOT, capture_output=True,
                             text=True, pass_fds=[zygote.descriptor],
                             env={**os.environ, VARIABLE: zygote.variable(-1)})
    assert process.stdout.split() == ["python", "True", "triton", "False"], process


LEAVING = """
import os, sys
from pathlib import Path
from harness.isolation.process_tree import descendants
from harness.isolation.guard import clean_env
from harness.isolation.process_outcome import Limits
from harness.child.memory.host_memory import HostMemory
from harness.compile.place import Place, kind_of
from harness.isolation.rpc import Peer
from harness.isolation.zygote_client import Zygote
zygote = Zygote.inherited(kind_of(Place(device="cpu", scratch=""), "python"))
peer = Peer("run.runner", cwd=Path(sys.argv[1]), limits=Limits(), env=clean_env(), zygote=zygote)
peer.ask("ready", language="python", device="cpu", interpret=False)
print(*descendants(peer._guarded.pid), flush=True)
os.kill(os.getpid(), 9)
"""


def test_engine_waits_until_the_runners_of_a_killed_harness_are_gone(
        zygote: Zygote, tmp_path: Path) -> None:
    with harness_client._wait_for_runners() as held:
        process = subprocess.run([sys.executable, "-c", LEAVING, str(tmp_path)], cwd=ROOT,
                                 capture_output=True, text=True,
                                 pass_fds=[zygote.descriptor, held],
                                 env={**os.environ, VARIABLE: zygote.variable(held)})
    assert process.returncode == -9 and process.stdout.split(), process
    assert not any(alive(int(pid)) for pid in process.stdout.split())


def test_zygote_that_dies_before_it_forks_is_an_environment_fault(tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch,
                                                            ) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    turnstile = device_lock.turnstile()
    with device_lock.acquire("cpu"):  # so the zygote waits
        waiting = Zygote.start(kind(), yields=turnstile)
        peer = runner(waiting, tmp_path / "home")
        waiting.close()
        with pytest.raises(EnvironmentFault, match="has died"):
            ready(peer)
