"""Shared memory, descriptors over a socket, and processes that may run during a measurement."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.child import channel
from harness.child.memory.host_memory import HostMemory
from harness.isolation import device_lock, guard
from harness.isolation.guard import Guarded
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import Peer
from harness.isolation.zygote_client import PROGRAM
from tests.support.devices.device_lock_case import is_held
from tests.support.programs.processes import python, until

BUSY_LOOP = """
n = 0
while True:
    for _ in range(20000): pass
    n += 1
    open("progress", "w").write(str(n))
"""
ANSWERS = """
import os, sys
sys.path.insert(0, {root!r})
from harness.child.channel import serve
def answer(job):
    if job["op"] == "read":
        return {{"texts": [os.pread(fd, 99, 0).decode() for fd in job["received"]]}}
    files = []
    for text in job["texts"]:
        files.append(os.memfd_create("answer"))
        os.pwrite(files[-1], text.encode(), 0)
    return {{"count": len(files), "share": files}}
serve(int(sys.argv[-1]), answer)
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))


# The memory


@pytest.mark.parametrize("size", [0, 1, mmap.PAGESIZE, 64 * mmap.PAGESIZE])
def test_receiver_cannot_change_the_size_of_the_memory(size: int) -> None:
    """If the memory shrank, its other user would be killed by SIGBUS at the next read."""
    memory = HostMemory.create(4 * mmap.PAGESIZE)
    with closing(memory):
        received = os.dup(memory.fd)
        with pytest.raises(PermissionError):
            os.ftruncate(received, size)
        with pytest.raises(PermissionError):
            fcntl.fcntl(received, 1033, 0)  # F_ADD_SEALS: the seals are fixed too
        assert os.fstat(received).st_size == 4 * mmap.PAGESIZE
        reopened = os.open(f"/proc/self/fd/{received}", os.O_RDWR)
        with pytest.raises(PermissionError):
            os.ftruncate(reopened, size)
        os.close(reopened)
        os.close(received)


def test_writes_are_visible_in_both_mappings() -> None:
    memory = HostMemory.create(100)
    received = HostMemory.received([os.dup(memory.fd)], memory.nbytes)
    assert received.fd == -1 and memory.address != received.address
    memory.map[3] = 7
    received.map[99] = 8
    assert (received.map[3], memory.map[99]) == (7, 8)
    memory.close()
    memory.close()
    assert received.map[3] == 7, "the mapping outlives the file"


def test_received_memory_is_mapped_while_it_is_used_and_keeps_no_file_open() -> None:
    def count_maps_and_files() -> tuple[int, int]:
        with open("/proc/self/maps") as maps:
            mapped = sum("memfd:kopt" in line for line in maps)
        files = Path("/proc/self/fd")
        return mapped, sum("memfd:kopt" in os.readlink(files / name)
                           for name in os.listdir(files) if (files / name).is_symlink())

    mapped, opened = count_maps_and_files()
    memory = HostMemory.create(4096)
    received = HostMemory.received([os.dup(memory.fd)], 4096)
    view = memoryview(received.map)
    memory.close()
    del memory
    assert count_maps_and_files() == (mapped + 1, opened)
    del received
    assert count_maps_and_files() == (mapped + 1, opened) and len(view) == 4096
    del view
    assert count_maps_and_files() == (mapped, opened)


# Descriptors over a socket


def test_channel_delivers_descriptors_with_their_request() -> None:
    ours, theirs = socket.socketpair()
    jobs: list[dict[str, Any]] = []
    reading, writing = os.pipe()
    with ours:
        socket.send_fds(ours, [b'{"op": "a"}\n'], [writing])
        ours.sendall(b'{"op": "b"}\n')
        ours.shutdown(socket.SHUT_WR)
        channel.serve(theirs.detach(), jobs.append)
        (first, [received]), (second, none) = ((job["op"], job["received"]) for job in jobs)
        assert (first, second, none) == ("a", "b", [])
        os.write(received, b"it is the same pipe")
        assert os.read(reading, 99) == b"it is the same pipe"
    for fd in (reading, writing, received):
        os.close(fd)


def answering(folder: Path, monkeypatch: pytest.MonkeyPatch, *, takes: bool) -> Peer:
    """Start a child that reads the descriptors it receives, and sends some of its own."""
    script = folder / "answers.py"
    script.write_text(ANSWERS.format(root=str(PROGRAM.parents[2])))
    monkeypatch.setattr("harness.isolation.rpc.PROGRAM", script)
    return Peer("answers", cwd=folder, limits=Limits(wall_s=60.0),
                takes_descriptors=takes)


def test_descriptors_travel_with_requests_and_answers(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(tmp_path, monkeypatch, takes=True) as peer:
        sent = []
        for text in ("one", "two"):
            sent.append(os.memfd_create("request"))
            os.pwrite(sent[-1], text.encode(), 0)
        peer.send("read", sent)
        assert peer.receive() == {"texts": ["one", "two"]}
        assert peer.ask("write", texts=["three", "four"]) == {"count": 2}
        received = peer.take_received()
        assert [os.pread(fd, 99, 0) for fd in received] == [b"three", b"four"]
        assert peer.take_received() == []
        for fd in (*sent, *received):
            os.close(fd)


def test_descriptors_of_an_untrusted_child_are_not_received(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(tmp_path, monkeypatch, takes=False) as peer:
        before = len(os.listdir("/proc/self/fd"))
        assert peer.ask("write", texts=["three", "four"]) == {"count": 2}
        assert peer.take_received() == [] and len(os.listdir("/proc/self/fd")) == before


# A process that its owner lets run while it measures


def progress(folder: Path) -> str:
    file = folder / "progress"
    return file.read_text() if file.exists() else ""


def makes_no_progress(folder: Path) -> bool:
    """Return whether a process makes no progress during half a second."""
    before = progress(folder)
    return not until(lambda: progress(folder) not in ("", before), 0.5)


def test_exempted_process_runs_while_its_owner_measures(tmp_path: Path) -> None:
    with Guarded(python(BUSY_LOOP), cwd=tmp_path, env=guard.clean_env(),
                 limits=Limits(wall_s=120), yields=device_lock.turnstile()) as guarded:
        assert until(lambda: progress(tmp_path) != "")
        with device_lock.acquire("cpu", timeout_s=60):
            assert makes_no_progress(tmp_path)
            guarded.exempt(True)
            before = progress(tmp_path)
            assert until(lambda: progress(tmp_path) not in ("", before))
            guarded.exempt(False)
            assert until(lambda: makes_no_progress(tmp_path))
        before = progress(tmp_path)
        assert until(lambda: progress(tmp_path) not in ("", before))
        guarded.kill()


def test_process_yields_to_others_after_its_exemption(tmp_path: Path) -> None:
    """A later measurement waits until the process has stopped, though it ran in between."""
    with Guarded(python(BUSY_LOOP), cwd=tmp_path, env=guard.clean_env(),
                 limits=Limits(wall_s=120), yields=device_lock.turnstile()) as guarded:
        assert until(lambda: progress(tmp_path) != "")
        for _ in range(5):
            with device_lock.acquire("cpu", timeout_s=60):
                guarded.exempt(True)
                assert not makes_no_progress(tmp_path)
                guarded.exempt(False)
            assert until(_is_active), "it runs and does not hold the turnstile"
        with device_lock.acquire("cpu", timeout_s=60):
            assert makes_no_progress(tmp_path)
        guarded.kill()


def _is_active() -> bool:
    """Return whether a yielding process holds `active`, for which a measurement waits."""
    return is_held(device_lock.turnstile().paths[1])
