"""Processes that yield are stopped while another one measures."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness.isolation import device_lock, guard
from harness.isolation.guard import Guarded
from harness.isolation.process_outcome import Limits
from tests.support.devices.device_lock_case import MEASURE
from tests.support.programs.processes import mark, marked, owner, python, until

BUSY_LOOP = """
n = 0
while True:
    for _ in range(20000): pass
    n += 1
    open("progress", "w").write(str(n))
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "locks"
    monkeypatch.setenv("KOPT_LOCK_DIR", str(folder))
    return folder


def burner_progress(folder: Path) -> int:
    """Return the counter that the busy loop writes, -1 if its file stays empty for 30 s."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        text = (folder / "progress").read_text() if (folder / "progress").exists() else ""
        if text:
            return int(text)
    return -1


@pytest.mark.parametrize("children", [False, True])
def test_yielding_process_is_stopped_during_a_measurement(children: bool,
                                                                tmp_path: Path) -> None:
    code = f"import os\nos.setsid() if os.fork() == 0 else os.wait()\nexec({BUSY_LOOP!r})" \
        if children else BUSY_LOOP
    with Guarded(python(code), cwd=tmp_path, env=guard.clean_env(), yields=device_lock.turnstile(),
                 limits=Limits(wall_s=2.0)) as guarded:
        assert until(lambda: burner_progress(tmp_path) > 0)
        with device_lock.acquire("cpu"):
            text = (tmp_path / "progress").read_text()
            seen = {text}
            end = time.monotonic() + 2.5  # longer than its wall limit
            while time.monotonic() < end:
                seen.add((tmp_path / "progress").read_text())
            assert seen == {text}
        assert until(lambda: (tmp_path / "progress").read_text() not in ("", text))
        outcome = guarded.wait()
    assert outcome.ended == "timeout"
    assert outcome.stopped_s > 2.3
    assert outcome.wall_s - outcome.stopped_s > 1.9  # it ran for its whole limit


def test_yielding_process_does_not_start_during_a_measurement(tmp_path: Path) -> None:
    held = device_lock.acquire("cpu")
    with Guarded(python(BUSY_LOOP), cwd=tmp_path, env=guard.clean_env(),
                 yields=device_lock.turnstile()) as guarded:
        assert not until((tmp_path / "progress").exists, 0.5)
        held.release()
        assert until((tmp_path / "progress").exists)
        guarded.kill()
        assert guarded.wait().ended == "killed"


def test_process_that_waits_to_start_can_be_killed(tmp_path: Path) -> None:
    with device_lock.acquire("cpu"):
        guarded = Guarded(python(BUSY_LOOP), cwd=tmp_path, env=guard.clean_env(),
                          yields=device_lock.turnstile())
        guarded.kill()
        outcome = guarded.wait()
    assert (outcome.ended, outcome.returncode) == ("killed", None)


def test_stopped_process_can_be_killed_during_a_measurement(tmp_path: Path) -> None:
    marker = mark()
    with Guarded(python(BUSY_LOOP, marker), cwd=tmp_path, env=guard.clean_env(),
                 yields=device_lock.turnstile()) as guarded:
        assert until((tmp_path / "progress").exists)
        with device_lock.acquire("cpu"):
            guarded.kill()
            assert guarded.wait().ended == "killed"
            assert marked(marker) == {}


def test_measurements_take_turns_and_never_overlap(tmp_path: Path) -> None:
    log = tmp_path / "log"
    yielding = Guarded(python(BUSY_LOOP), cwd=tmp_path, env=guard.clean_env(),
                       yields=device_lock.turnstile(), limits=Limits(wall_s=180))
    with yielding, owner(MEASURE, str(log), "a") as a, owner(MEASURE, str(log), "b") as b:
        assert a.wait(timeout=90) == b.wait(timeout=90) == 0
    spans = sorted((int(begin), int(end), process) for process, begin, end in
                   (line.split() for line in log.read_text().splitlines()))
    assert len(spans) == 12
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
    changes = sum(x[2] != y[2] for x, y in itertools.pairwise(spans))
    assert changes >= 3


VFORKED = """#include <unistd.h>
int main(void) {
    write(1, "up\\n", 3);
    if (vfork() == 0) { for (volatile long i = 0; i < 40000000000; i++) ; _exit(0); }
    return 0;
}
"""


def test_process_in_vfork_yields_to_a_measurement(tmp_path: Path) -> None:
    """The parent waits in vfork for its stopped child, uninterruptibly, and so does not run."""
    (tmp_path / "vforked.c").write_text(VFORKED)
    subprocess.run(["cc", "-o", "vforked", "vforked.c"], cwd=tmp_path, check=True)
    up = threading.Event()
    with Guarded([str(tmp_path / "vforked")], cwd=tmp_path, env=guard.clean_env(),
                 yields=device_lock.turnstile(), on_line=lambda _: up.set()) as guarded:
        ended = threading.Thread(target=guarded.wait)
        ended.start()
        assert up.wait(60.0)
        device_lock.acquire("cpu", timeout_s=30.0).release()
        guarded.kill()
        ended.join(60.0)
