"""All descendants of a process are stopped, also new ones, with few reads of the process table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from harness.isolation import process_tree

PARENT = """
import subprocess, sys
for line in sys.stdin:
    child = subprocess.Popen([sys.executable, "-c", "import time\\nwhile True: time.sleep(60)"])
    print(child.pid, flush=True)
"""


class Parent:
    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", PARENT], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def child(self) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("more\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@pytest.fixture
def parent() -> Iterator[Parent]:
    started = Parent()
    yield started
    for pid in process_tree.descendants(started.process.pid):
        subprocess.run(["kill", "-KILL", str(pid)], check=False)
    started.process.kill()
    started.process.communicate()


def state(pid: int) -> str:
    return process_tree._state(pid)


def await_stop(*pids: int) -> None:
    """Wait until processes that were signalled have been scheduled, and so have stopped."""
    while {state(pid) for pid in pids} != {"T"}:
        pass


def test_all_descendants_are_stopped_and_resumed(parent: Parent) -> None:
    children = {parent.child(), parent.child()}
    stopped = process_tree.stop(parent.process.pid)
    assert stopped == children
    await_stop(*children)
    process_tree.resume(stopped)
    while "T" in {state(pid) for pid in children}:
        pass


def test_descendants_started_since_the_last_stop_are_stopped_too(parent: Parent) -> None:
    known = {parent.child()}
    process_tree.resume(process_tree.stop(parent.process.pid, known))
    new = parent.child()
    assert process_tree.stop(parent.process.pid, known) == known | {new}
    await_stop(*known, new)


def test_known_descendants_are_looked_up_once(parent: Parent,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    known = {parent.child()}
    lookups, found = [], process_tree.descendants
    process_tree.stop(parent.process.pid, known)
    await_stop(*known)
    monkeypatch.setattr(process_tree, "descendants", lambda pid: lookups.append(pid) or found(pid))
    assert process_tree.stop(parent.process.pid, known) == known
    assert len(lookups) == 1


def test_busiest_process_is_reported_by_its_cpu_time_and_number_of_sleeps() -> None:
    spin = "import time\nwhile time.process_time() < 0.2: pass\nprint(1, flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE, text=True,
                          stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None and busy.stdin is not None
        pids = [1, busy.pid]
        before = process_tree.cpu_times(pids) | {busy.pid: process_tree.CpuTime(0, 0)}
        busy.stdout.readline()
        while state(busy.pid) != "S":
            pass
        spent = process_tree.busiest(before, process_tree.cpu_times(pids))
        busy.stdin.close()
    assert spent is not None and 0.2e9 <= spent.busy_ns < 5e9 and spent.sleeps >= 1
    assert process_tree.busiest({}, {}) is None
