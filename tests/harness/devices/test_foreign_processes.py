"""Foreign processes on a card are told apart from ours, however a driver lists their pids."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.devices.monitoring import tenants
from harness.devices.monitoring.tenants import (
    BY_NUMBER,
    NOT_LISTED,
    ProcessClassifier,
    own_processes,
)
from harness.isolation.guard import Guarded
from tests.support.programs.processes import alive, kill, python, until

STRANGER = os.getppid()
NOBODY = 1 << 23
"""Above the largest pid of Linux (PID_MAX_LIMIT is 1 << 22)."""


@pytest.fixture
def child() -> Iterator[int]:
    """A real process of ours."""
    with subprocess.Popen(python("import time; time.sleep(60)")) as process:
        yield process.pid
        process.kill()


def test_foreign_processes_follow_from_driver_list(
        child: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "in_first_namespace", lambda: True)
    cases: list[tuple[str, list[tuple[int, ...] | None], int, tuple[int, ...], str]] = [
        ("nobody yet", [()], 2, (), BY_NUMBER),
        ("ours only", [(child,), (child, child)], 1, (), ""),
        ("a newcomer", [(child,), (child, STRANGER)], 2, (STRANGER,), ""),
        ("there before us", [(STRANGER,), (STRANGER, child)], 2, (STRANGER,), ""),
        ("one without a pid", [(child,), (child, 0)], 1, (0,), ""),
        ("ours has none either", [(child, 0)], 2, (), ""),
        ("a driver that gives no pids", [(0, 0)], 2, (), BY_NUMBER),
        ("one more without pids", [(0, 0), (0, 0, 0)], 2, (0,), BY_NUMBER),
        ("pids of the host", [(NOBODY, NOBODY + 1)], 2, (), BY_NUMBER),
        ("one more of the host", [(NOBODY, NOBODY + 1, NOBODY + 2)], 2, (0,), BY_NUMBER),
        ("a host's pid that is somebody here", [(NOBODY, STRANGER)], 2, (), BY_NUMBER),
        ("one pid for a whole sandbox", [(STRANGER, STRANGER, STRANGER)], 2, (), BY_NUMBER),
        ("one that has just died", [(child, NOBODY)], 2, (), ""),
        ("no list", [None], 2, (), NOT_LISTED),
        ("a list that comes and goes", [(child,), None], 2, (), NOT_LISTED),
    ]
    for name, lists, runners, expected, doubt in cases:
        classifier = ProcessClassifier(runners)
        observations = [classifier.classify(pids) for pids in lists]
        assert classifier.foreign(observations) == (expected, doubt), name


def test_stranger_among_our_processes_is_always_found(child: int) -> None:
    others = (0, NOBODY, child)
    for count in range(len(others) + 1):
        for order in itertools.permutations((*others[:count], STRANGER, child)):
            classifier = ProcessClassifier(9)
            foreign, _ = classifier.foreign([classifier.classify(order)])
            assert foreign == (STRANGER,)


def test_our_process_stays_ours_while_it_is_listed() -> None:
    code = ("import subprocess, sys, time; "
            "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid, "
            "flush=True); time.sleep(60)")
    classifier = ProcessClassifier(1)
    with subprocess.Popen(python(code), stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        try:
            observations = [classifier.classify((orphan,))]
            parent.kill()
            parent.wait()
            assert orphan not in own_processes() and alive(orphan)
            observations.append(classifier.classify((orphan,)))
            assert classifier.foreign(observations)[0] == ()
        finally:
            kill(orphan)
    classifier.classify(())
    again = classifier.classify((STRANGER,))
    assert classifier.foreign([again])[0] == (STRANGER,)


def test_container_reports_that_processes_may_be_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = ProcessClassifier(1)
    observation = classifier.classify((os.getpid(),))
    monkeypatch.setattr(tenants, "FIRST_NAMESPACE", 1)
    assert classifier.foreign([observation])[1] == tenants.HIDDEN


def test_own_processes_include_supervisors_and_their_children(tmp_path: Path) -> None:
    lines: list[bytes] = []
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with Guarded(python(code), cwd=tmp_path, env={}, on_line=lines.append) as guarded:
        waiting = threading.Thread(target=guarded.wait)
        waiting.start()
        assert until(lambda: lines)
        assert {guarded.pid, int(lines[0]), os.getpid()} <= own_processes()
        assert STRANGER not in own_processes()
        guarded.kill()
        waiting.join(60)
