"""Telling foreign processes on a card from ours, with real processes and the lists of drivers."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.devices.monitoring import foreign_processes
from harness.devices.monitoring.foreign_processes import (
    BY_NUMBER,
    NOT_LISTED,
    ProcessClassifier,
    own_processes,
)
from harness.isolation.guard import Guarded
from tests.support.processes import alive, kill, python, until

STRANGER = os.getppid()
NOBODY = 1 << 23
"""Above every pid that Linux gives (PID_MAX_LIMIT is 1 << 22)."""


@pytest.fixture
def child() -> Iterator[int]:
    """A real process of ours."""
    with subprocess.Popen(python("import time; time.sleep(60)")) as process:
        yield process.pid
        process.kill()


def test_who_is_foreign(child: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_processes, "in_first_namespace", lambda: True)
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
        census = ProcessClassifier(own_processes, lambda runners=runners: runners)  # type: ignore[misc]
        companies = [census.look(pids) for pids in lists]
        assert census.foreign(companies) == (expected, doubt), name


def test_a_stranger_among_ours_is_told_whatever_else_is_listed(child: int) -> None:
    others = (0, NOBODY, child)
    for count in range(len(others) + 1):
        for order in itertools.permutations((*others[:count], STRANGER, child)):
            census = ProcessClassifier(own_processes, lambda: 9)
            found, _ = census.foreign([census.look(order)])
            assert found == (STRANGER,)


def test_a_process_of_ours_stays_ours_while_it_is_listed_even_without_its_parent() -> None:
    code = ("import subprocess, sys, time; "
            "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid, "
            "flush=True); time.sleep(60)")
    census = ProcessClassifier(own_processes, lambda: 1)
    with subprocess.Popen(python(code), stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        try:
            companies = [census.look((orphan,))]
            parent.kill()
            parent.wait()
            assert orphan not in own_processes() and alive(orphan)
            companies.append(census.look((orphan,)))
            assert census.foreign(companies)[0] == ()
        finally:
            kill(orphan)
    census.look(())
    again = census.look((STRANGER,))
    assert census.foreign([again])[0] == (STRANGER,)


def test_a_container_says_that_it_may_not_see_all(monkeypatch: pytest.MonkeyPatch) -> None:
    census = ProcessClassifier(own_processes, lambda: 1)
    company = census.look((os.getpid(),))
    monkeypatch.setattr(foreign_processes, "FIRST_NAMESPACE", 1)
    assert census.foreign([company])[1] == foreign_processes.HIDDEN


def test_ours_are_what_the_guards_run(tmp_path: Path) -> None:
    lines: list[bytes] = []
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with Guarded(python(code), cwd=tmp_path, env={}, on_line=lines.append) as guarded:
        waiting = threading.Thread(target=guarded.wait)
        waiting.start()
        assert until(lambda: lines)
        assert {guarded.pid, int(lines[0]), os.getpid()} <= own_processes()
        assert STRANGER not in own_processes()
        guarded.kill()
        waiting.join(10)
