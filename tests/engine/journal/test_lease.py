"""A campaign's lease has one owner; a dead owner is replaced at once, by exactly one engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from engine.journal import lease, liveness
from engine.journal.lease import LeaseLost
from engine.journal.liveness import Lease
from engine.journal.read import Reader
from engine.journal.write import Writer
from harness.errors import Refused

OWNER = """
import sys, time
from pathlib import Path
from engine.journal import lease
from engine.journal.write import Writer
from harness.errors import Refused
writer = Writer(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
try:
    owned = lease.acquire(writer, "rms")
except Refused as refusal:
    print("refused", refusal, flush=True)
else:
    writer.event("rms", "log", message="mine")
    print("owner", owned.epoch, flush=True)
sys.stdin.readline()
"""


@contextmanager
def engines(workspace: Path, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes that wait for a line of input and then try to acquire the lease."""
    started = [subprocess.Popen([sys.executable, "-c", OWNER, str(workspace)], text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
               for _ in range(count)]
    try:
        for process in started:
            assert answer_of(process) == "ready"
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def answer_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell_to_acquire(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_lease_is_acquired_renewed_and_released(writer: Writer, tmp_path: Path) -> None:
    owned = lease.acquire(writer, "rms")
    reader = Reader(tmp_path)
    assert reader.lease("rms") == owned
    assert (owned.epoch, owned.pid) == (1, os.getpid())
    assert liveness.alive(owned)
    renewed = lease.heartbeat(writer, owned)
    assert renewed.heartbeat > owned.heartbeat
    writer.event("rms", "log")
    lease.release(writer, renewed)
    assert reader.lease("rms") is None
    with pytest.raises(LeaseLost):
        writer.event("rms", "log")
    assert lease.acquire(writer, "rms").epoch == 2


def test_living_owner_is_not_replaced(writer: Writer, tmp_path: Path) -> None:
    with engines(tmp_path, 1) as (owner,):
        tell_to_acquire(owner)
        assert answer_of(owner) == "owner 1"
        with pytest.raises(Refused, match=f"process {owner.pid}") as refusal:
            lease.acquire(writer, "rms")
        assert "\n" not in str(refusal.value)


def test_killed_owner_is_replaced_at_once_even_as_a_zombie(
    writer: Writer, tmp_path: Path
) -> None:
    with engines(tmp_path, 1) as (owner,):
        tell_to_acquire(owner)
        assert answer_of(owner) == "owner 1"
        owner.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # dead and not reaped
        assert lease.acquire(writer, "rms").epoch == 2
    last = Reader(tmp_path).last_events("rms")[-1]
    assert last.kind == "log"
    assert b"taken over" in last.payload


def test_exactly_one_of_many_takeovers_succeeds(writer: Writer, tmp_path: Path) -> None:
    lease.acquire(writer, "rms")
    dead = subprocess.Popen(["true"])
    dead.wait()
    writer.put_lease(Lease(campaign="rms", host=liveness.this_host(), pid=dead.pid, started=1.0,
                           epoch=7, heartbeat=time.time()))
    with engines(tmp_path, 4) as racing:
        for process in racing:
            tell_to_acquire(process)
        answers = [answer_of(process) for process in racing]
        assert sorted(answer.split()[0] for answer in answers) == ["owner"] + ["refused"] * 3
        assert "owner 8" in answers
    mine = [e for e in Reader(tmp_path).last_events("rms") if e.payload == b'{"message":"mine"}']
    assert len(mine) == 1


@pytest.mark.parametrize(("change", "is_alive"), [
    ({}, True),
    ({"started": 12.5}, False),  # the process id was reused
    ({"pid": 0}, False),  # released
    ({"heartbeat": 0.0}, True),  # busy, but its process exists
    ({"host": "elsewhere b n"}, True),
    ({"host": "elsewhere b n", "heartbeat": 0.0}, False),
    ({"host": "elsewhere b n", "pid": 1}, True),
])
def test_owner_is_alive_by_its_process_here_and_by_its_heartbeat_elsewhere(
        writer: Writer, change: dict[str, object], is_alive: bool) -> None:
    owned = lease.acquire(writer, "rms")
    assert liveness.alive(msgspec.structs.replace(owned, **change)) is is_alive


def test_owner_without_heartbeat_on_another_host_is_replaced(
        writer: Writer, tmp_path: Path) -> None:
    owned = lease.acquire(writer, "rms")
    writer.put_lease(msgspec.structs.replace(
        owned, host="elsewhere b n", heartbeat=time.time() - liveness.STALE_S + 5))
    other = Writer(tmp_path)
    with pytest.raises(Refused, match="on elsewhere"):
        lease.acquire(other, "rms")
    writer.put_lease(msgspec.structs.replace(
        owned, host="elsewhere b n", heartbeat=time.time() - liveness.STALE_S - 5))
    assert lease.acquire(other, "rms").epoch == 2
    for attempt in (lambda: lease.heartbeat(writer, owned), lambda: writer.event("rms", "log"),
                    lambda: lease.release(writer, owned)):
        with pytest.raises(LeaseLost):
            attempt()
    other.event("rms", "log")


def test_host_is_named_by_boot_and_namespace() -> None:
    name, boot, namespace = liveness.this_host().split(" ")
    assert name
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert namespace == os.readlink("/proc/self/ns/pid")


def test_start_time_is_read_despite_odd_process_name(tmp_path: Path) -> None:
    odd = tmp_path / "a ) R 1 ("
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([str(odd), "30"])
    try:
        started = liveness.process_start(process.pid)
        own = liveness.process_start(os.getpid())
        assert started is not None
        assert own is not None
        assert started >= own
    finally:
        process.kill()
        process.wait()
    assert liveness.process_start(process.pid) is None
