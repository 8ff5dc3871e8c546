"""Device locks are exclusive and the CPU's turnstile stops other work, with real processes."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import shutil
import threading
import time
from pathlib import Path

import pytest

from harness.errors import EnvironmentFault
from harness.isolation import device_lock, guard
from harness.isolation.guard import Guarded
from tests.support.devices.device_lock_case import MEASURE, is_held
from tests.support.programs.processes import kill, mark, marked, owner, python, until

HOLDER = """
from harness.isolation import device_lock as lock
held = lock.acquire("cpu")
print("held", flush=True)
import time
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "locks"
    monkeypatch.setenv("KOPT_LOCK_DIR", str(folder))
    return folder


def test_lock_is_exclusive_and_free_after_its_holder_is_killed() -> None:
    assert device_lock.holder("cpu") is None
    with owner(HOLDER) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert device_lock.holder("cpu") == process.pid
        with pytest.raises(EnvironmentFault, match=r"still busy after 0.1 s"):
            device_lock.acquire("cpu", timeout_s=0.1)
        device_lock.acquire("gpu-1", timeout_s=0.1).release()  # another device
        kill(process.pid)
    with device_lock.acquire("cpu", timeout_s=30) as held:
        assert device_lock.holder("cpu") == os.getpid()
        assert len(held.fds) == 3
    assert device_lock.holder("cpu") is None


def test_process_that_takes_the_lock_again_comes_after_the_first_in_line(locks: Path) -> None:
    turns: list[str] = []

    def take(name: str) -> None:
        with device_lock.acquire("cpu"):
            turns.append(name)

    for again in range(10):
        held = device_lock.acquire("cpu")
        waiter = threading.Thread(target=take, args=(f"waiter {again}",))
        waiter.start()
        assert until(lambda: is_held(locks / "cpu.next"), 30.0)
        held.release()
        take(f"again {again}")
        waiter.join()
    assert turns == [f"{name} {again}" for again in range(10) for name in ("waiter", "again")]


def test_wait_states_holder_and_time_and_can_be_cancelled(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(device_lock.OWNER, raising=False)  # an engine in this process sets it
    messages: list[str] = []
    cancel = threading.Event()

    def report(text: str) -> None:
        messages.append(text)
        cancel.set()

    with device_lock.acquire("cpu"), pytest.raises(EnvironmentFault, match="stopped while waiting"):
        device_lock.acquire("cpu", cancel=cancel, on_wait=report)
    monkeypatch.setenv(device_lock.OWNER, "matmul_c\x1b[2J")
    with device_lock.acquire("cpu"):
        for waiter in ("matmul_c\x1b[2J", "softmax"):
            cancel.clear()
            monkeypatch.setenv(device_lock.OWNER, waiter)
            with pytest.raises(EnvironmentFault, match="stopped while waiting"):
                device_lock.acquire("cpu", cancel=cancel, on_wait=report)
    assert [re.sub(r"\d\d:\d\d:\d\d", "NOW", text) for text in messages] == [
        f"waiting for cpu: held by process {os.getpid()} since NOW",
        "waiting for cpu: held by this campaign since NOW",
        "waiting for cpu: held by matmul_c since NOW"]


def test_card_is_named_by_the_beginning_of_its_uuid(locks: Path) -> None:
    card, messages = "gpu-GPU-4bce7ba6-a666-708b-50b7-8be97d19345d", list[str]()
    with device_lock.acquire(card), pytest.raises(EnvironmentFault):
        device_lock.acquire(card, timeout_s=1.0, on_wait=messages.append)
    assert messages[0].startswith("waiting for GPU-4bce7ba6: held by ")


def test_lock_outlives_its_owner_until_the_job_is_dead(tmp_path: Path) -> None:
    marker = mark()
    code = f"""
import sys
from pathlib import Path
from harness.isolation import guard
from harness.isolation import device_lock as lock
with lock.acquire("gpu-7") as held:
    guard.run([sys.executable, "-I", "-S", "-c", "import time; b = bytearray(300 << 20); "
               "open('up', 'w'); time.sleep(600)", {marker!r}], cwd=Path({str(tmp_path)!r}),
              lock=held)
"""
    with owner(code) as process:
        assert until((tmp_path / "up").exists)
        kill(process.pid)
        while device_lock.holder("gpu-7") is not None:
            pass
        assert marked(marker) == {}


def test_lock_passed_later_is_held_until_the_job_is_dead(tmp_path: Path) -> None:
    marker = mark()
    with Guarded(python("import time; open('up', 'w'); time.sleep(600)", marker), cwd=tmp_path,
                 env=guard.clean_env()) as guarded:
        assert until((tmp_path / "up").exists)
        held = device_lock.acquire("gpu-8")
        guarded.hold(held)
        assert until(lambda: holds(guarded.pid, "gpu-8.turn"))
        held.release()
        assert device_lock.holder("gpu-8") is not None
        guarded.kill()
        while device_lock.holder("gpu-8") is not None:
            pass
        assert marked(marker) == {}


def holds(pid: int, name: str) -> bool:
    """Return whether a process has a file of this name open."""
    links = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()
             if os.path.lexists(entry)]
    return any(link.endswith(name) for link in links)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00garbage", b"x" * 100_000, b"-1\n"])
def test_invalid_pid_in_a_lock_file_is_unknown(
        content: bytes, locks: Path) -> None:
    with device_lock.acquire("cpu"):
        (locks / "cpu.turn").write_bytes(content)
        assert device_lock.holder("cpu") == 0
        messages: list[str] = []
        cancel = threading.Event()

        def report(text: str) -> None:
            messages.append(text)
            cancel.set()

        with pytest.raises(EnvironmentFault):
            device_lock.acquire("cpu", cancel=cancel, on_wait=report)
        assert messages == ["waiting for cpu: held by another kopt"]


def test_lock_path_must_be_a_regular_file(locks: Path, tmp_path: Path) -> None:
    device_lock.lock_directory()
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (locks / "cpu.turn").symlink_to(precious)
    with pytest.raises(EnvironmentFault, match="cannot open the device lock"):
        device_lock.acquire("cpu")
    assert precious.read_text() == "precious"
    os.mkfifo(locks / "gpu-1.turn")
    with pytest.raises(EnvironmentFault, match="not a regular file"):
        device_lock.acquire("gpu-1")
    (locks / "gpu-2.turn").mkdir()
    with pytest.raises(EnvironmentFault, match="cannot open the device lock: Is a directory"):
        device_lock.acquire("gpu-2")


def test_lock_directory_that_cannot_be_made_is_an_error(monkeypatch: pytest.MonkeyPatch,
                                                        tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "file" / "below"))
    with pytest.raises(EnvironmentFault, match="cannot make the lock directory"):
        device_lock.acquire("cpu")


def test_lock_files_are_writable_for_every_user(locks: Path) -> None:
    device_lock.acquire("cpu").release()
    assert locks.stat().st_mode & 0o7777 == 0o1777
    assert {path.stat().st_mode & 0o777 for path in locks.iterdir()} == {0o666}


def test_lock_waits_for_a_foreign_holder_of_the_file(locks: Path) -> None:
    device_lock.lock_directory()
    with (locks / "cpu.turn").open("w") as foreign:
        fcntl.flock(foreign, fcntl.LOCK_EX)
        assert device_lock.holder("cpu") == 0
        with pytest.raises(EnvironmentFault, match="still busy"):
            device_lock.acquire("cpu", timeout_s=0.1)
    device_lock.acquire("cpu", timeout_s=30).release()


def test_several_devices_are_locked_and_released_together() -> None:
    with device_lock.acquire("gpu-20", "gpu-21") as held:
        assert len(held.fds) == 6
        assert [device_lock.holder(name) for name in ("gpu-20", "gpu-21")] == [os.getpid()] * 2
        with pytest.raises(EnvironmentFault, match="gpu-21: still busy"):
            device_lock.acquire("gpu-21", timeout_s=0.05)
    assert device_lock.holder("gpu-20") is None and device_lock.holder("gpu-21") is None


def test_failed_lock_of_several_devices_releases_all() -> None:
    with device_lock.acquire("gpu-23"), pytest.raises(EnvironmentFault, match="gpu-23: still busy"):
        device_lock.acquire("gpu-22", "gpu-23", timeout_s=0.05)
    assert device_lock.holder("gpu-22") is None


def test_removed_lock_file_does_not_admit_a_second_holder(locks: Path) -> None:
    with owner(HOLDER) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (locks / "cpu.turn").unlink()
        with pytest.raises(EnvironmentFault, match="still busy"):
            device_lock.acquire("cpu", timeout_s=0.2)
        assert device_lock.holder("cpu") is not None
        shutil.rmtree(locks)
        with pytest.raises(EnvironmentFault, match="still busy"):
            device_lock.acquire("cpu", timeout_s=0.2)
        device_lock.acquire("gpu-1", timeout_s=0.1).release()
        kill(process.pid)
    with device_lock.acquire("cpu", timeout_s=30):
        assert device_lock.holder("cpu") == os.getpid()
    assert device_lock.holder("cpu") is None


def test_waiters_for_a_removed_file_never_hold_the_lock_together(
        locks: Path, tmp_path: Path) -> None:
    """One process waits for the removed file, one for its successor."""
    log = tmp_path / "log"
    first = device_lock.acquire("cpu")
    with owner(MEASURE, str(log), "a") as a:
        assert until(lambda: holds(a.pid, "cpu.turn") or (tmp_path / "a").exists())
        (locks / "cpu.turn").unlink()
        with owner(MEASURE, str(log), "b") as b:
            assert until((tmp_path / "b").exists)
            assert not until(log.exists, 0.5)
            first.release()
            end = time.monotonic() + 90
            while a.poll() is None or b.poll() is None:
                assert time.monotonic() < end
                (locks / "cpu.turn").unlink(missing_ok=True)
    assert a.returncode == b.returncode == 0
    spans = sorted((int(begin), int(end)) for _, begin, end in
                   (line.split() for line in log.read_text().splitlines()))
    assert len(spans) == 12
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


def test_taking_a_lock_renews_the_time_of_its_files(locks: Path) -> None:
    device_lock.acquire("cpu").release()
    for path in locks.iterdir():
        os.utime(path, (1.0, 1.0))
    device_lock.acquire("cpu").release()
    assert all(path.stat().st_mtime > 1.0 for path in locks.iterdir())


def test_file_lock_suffices_where_sockets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(device_lock.socket, "socket", refused)
    with device_lock.acquire("gpu-25"), pytest.raises(EnvironmentFault, match="still busy"):
        device_lock.acquire("gpu-25", timeout_s=0.05)
    assert device_lock.holder("gpu-25") is None
