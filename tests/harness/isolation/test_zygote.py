"""Programs forked from a zygote are guarded like newly started ones and share only its code."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import mmap
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from socket import send_fds, socketpair
from typing import Any

import pytest

from harness.child.memory.host_memory import HostMemory
from harness.child.supervise.zygote import HUGE_BYTES, MADV_COLLAPSE
from harness.compile.place import kind_of
from harness.devices.monitoring import tenants
from harness.formats.json_codec import to_json
from harness.isolation import device_lock, process_tree
from harness.isolation.confinement import Confine
from harness.isolation.guard import Guarded, clean_env
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import Peer, PeerError
from harness.isolation.zygote_client import (
    ForkedSupervisor,
    Zygote,
    forked_pids,
)
from harness.runners.slots.slot_layout import placed
from tests.support.paths import ROOT
from tests.support.programs.processes import alive, kill, until
from tests.support.programs.zygote_case import LIMITS, PLACE, kind, ready, runner

PROBE = """
import json, os, sys
def double(x, out):
    status = open("/proc/self/status").read()
    def line(name): return next(l for l in status.splitlines() if l.startswith(name)).split()[1:]
    fds = sorted(int(n) for n in os.listdir("/proc/self/fd"))
    sys.stdout.write(json.dumps({
        "env": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid(), "ppid": os.getppid(),
        "caps": [line("CapEff"), line("CapPrm")],
        "descriptors": [os.readlink(f"/proc/self/fd/{fd}") for fd in fds
                    if os.path.islink(f"/proc/self/fd/{fd}")],
        "temporary": __import__("tempfile").gettempdir()}) + chr(10))
    sys.stdout.flush()
    try:
        open(os.path.join(os.environ["OUTSIDE"], "left"), "w")
    except OSError:
        sys.stdout.write("refused" + chr(10))
    sys.stdout.flush()
    out.copy_(2 * x)
"""


def test_languages_that_import_other_modules_have_other_zygotes() -> None:
    assert kind("c") != kind("python")
    assert kind_of(replace(PLACE, python="/their/python"), "c") == kind("c"), "numpy is ours"
    assert kind("triton") != kind("python")
    assert kind() == kind() and kind().name != kind("triton").name


def test_fork_has_torch_imported_and_without_a_zygote_a_new_process_imports_it(
        zygote: Zygote, tmp_path: Path) -> None:
    with runner(zygote, tmp_path / "first") as peer:
        ready(peer)  # the zygote itself may still be importing
    with runner(zygote, tmp_path / "second") as peer:
        assert ready(peer)["torch"]
        forked_s = cpu_time_s(peer)
    gone = Zygote.start(kind())
    gone.close()
    with runner(gone, tmp_path / "third") as peer:  # starts a new process
        assert ready(peer)["torch"]
        assert forked_s < cpu_time_s(peer) / 2


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists()
                    or [int(n) for n in os.uname().release.split(".")[:2]] < [6, 1],
                    reason="this kernel cannot move memory to huge pages")
def test_zygote_keeps_most_of_its_memory_in_huge_pages_so_that_forks_are_cheap(
        zygote: Zygote, tmp_path: Path) -> None:
    with runner(zygote, tmp_path / "home") as peer:
        ready(peer)
        assert zygote._process is not None
        lines = Path(f"/proc/{zygote._process.pid}/smaps_rollup").read_text().splitlines()[1:]
    amounts_kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    half_kib = amounts_kib["Anonymous"] // 2
    if amounts_kib["AnonHugePages"] <= half_kib and not has_free_huge_pages(half_kib):
        pytest.skip("the memory of this machine is too scattered for huge pages")
    assert amounts_kib["AnonHugePages"] > half_kib


def has_free_huge_pages(amount_kib: int) -> bool:
    """Return whether the kernel moves that much memory of this process to huge pages now."""
    count = -(-amount_kib * 1024 // HUGE_BYTES)
    memory = mmap.mmap(-1, (count + 1) * HUGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)  # its pages are small before they are moved
    memory.write(b"1" * len(memory))
    memory.madvise(mmap.MADV_HUGEPAGE)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    first = -(-first // HUGE_BYTES) * HUGE_BYTES
    return not ctypes.CDLL(None).madvise(
        ctypes.c_void_p(first), ctypes.c_size_t(count * HUGE_BYTES), MADV_COLLAPSE)


def cpu_time_s(peer: Peer) -> float:
    """Return the CPU time of a runner's supervisor and of all its children."""
    pids = [peer._guarded.pid]
    for pid in pids:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        pids += [int(child) for child in children.split()]
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


def test_fork_sees_only_the_given_environment_and_writes_only_to_its_folder(
        zygote: Zygote, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "kernel.py").write_text(PROBE)
    home = tmp_path / "home"
    home.mkdir()
    env = clean_env({"OUTSIDE": str(outside), "MARK": "mine"}, home=home)
    forked = _run_probe(zygote, tmp_path, env, home)
    fresh = _run_probe(None, tmp_path, env, home)
    assert forked[0]["env"] == env | {
        key: value for key, value in forked[0]["env"].items() if key == "LC_CTYPE"}
    for name in ("cwd", "caps", "temporary", "pid", "ppid"):
        assert forked[0][name] == fresh[0][name], name
    assert forked[0]["caps"] == [["0000000000000000"]] * 2
    assert len(forked[0]["descriptors"]) == len(fresh[0]["descriptors"]), (forked, fresh)
    assert forked[1:] == fresh[1:] == ["refused"] and not list(outside.iterdir())


def _run_probe(zygote: Zygote | None, folder: Path, env: dict[str, str], home: Path) -> list[Any]:
    source = folder / "kernel.py"
    ours, theirs = socketpair()
    argv = [sys.executable, "-I", str(ROOT / "harness" / "child" / "__main__.py"), "run.runner",
            str(theirs.fileno())]
    with theirs:
        guarded = Guarded(argv, cwd=home, env=env, limits=LIMITS, zygote=zygote,
                          program="run.runner",
                          pass_fds=[theirs.fileno()],
                          confine=Confine(writable=(str(home),), required=True))
    shared = {"dtype": "float32", "shape": [4], "nbytes": 16, "weight": False, "value": None,
              "strided": False}
    tensors, size = placed([{"name": "x", "role": "input", **shared},
                            {"name": "out", "role": "output", **shared}])
    memory = HostMemory.create(size)
    load = {"op": "load", "language": "python", "artifact": str(source), "root": str(folder),
            "sha256": hashlib.sha256(source.read_bytes()).hexdigest(), "entry": "double",
            "returns": False, "device": "cpu", "interpret": False, "loop": "", "adapter": "",
            "adapter_function": ""}
    prepare = {"op": "prepare", "case": "one", "slots": 1,
               "memory": {"kind": "host", "nbytes": size}, "slot_bytes": size,
               "tensors": tensors, "returned": [], "call": False, "keep": False,
               "one_weight": False}
    with ours, ours.makefile("rb") as stream, closing(memory):
        for request in (load, prepare, {"op": "call", "case": "one", "slot": 0, "touched": []}):
            send_fds(ours, [to_json(request) + b"\n"],
                     [memory.fd] if request is prepare else [])
            answer = json.loads(stream.readline())
            assert "error" not in answer, answer
    outcome = guarded.wait()
    assert (outcome.ended, outcome.returncode) == ("exit", 0), outcome
    first, *others = outcome.stdout.decode().splitlines()
    return [json.loads(first), *others]


@pytest.mark.parametrize("is_forked", [True, False])
def test_output_of_a_killed_runner_is_kept(is_forked: bool, zygote: Zygote, tmp_path: Path) -> None:
    source = tmp_path / "kernel.py"
    source.write_text("print('used 10 registers')\ndef double(x, out): pass\n")
    peer = runner(zygote if is_forked else None, tmp_path / "home")
    peer.ask("load", language="python", artifact=str(source), root=str(tmp_path), entry="double",
             sha256=hashlib.sha256(source.read_bytes()).hexdigest(), returns=False, device="cpu",
             interpret=False, loop="", adapter="", adapter_function="")
    peer.kill()
    assert peer.close().stdout == b"used 10 registers\n"


def test_fork_reports_its_failure(zygote: Zygote, tmp_path: Path) -> None:
    with runner(zygote, tmp_path / "home") as peer:
        with pytest.raises(PeerError, match="FileNotFoundError"):
            peer.ask("load", language="python", artifact=str(tmp_path / "none.py"), root="",
                     device="cpu", interpret=False, returns=False, sha256="", entry="f",
                     loop="")
        assert ready(peer)["torch"]
    ended = peer.close()
    assert ended.ended in ("exit", "killed")


def test_fork_obeys_its_limits(zygote: Zygote, tmp_path: Path) -> None:
    with runner(zygote, tmp_path / "first") as peer:
        ready(peer)  # the zygote itself may still be importing
    with runner(zygote, tmp_path / "home", limits=Limits(wall_s=0.5)) as peer:
        assert until(lambda: not alive(peer._guarded.pid))
        assert peer.close().ended == "timeout"


def test_killed_fork_leaves_the_zygote_and_other_forks(zygote: Zygote, tmp_path: Path) -> None:
    with runner(zygote, tmp_path / "first") as first, runner(zygote, tmp_path / "other") as other:
        ready(first)
        kill(first._guarded.pid)
        assert first._guarded.wait().ended == "killed"
        ready(other)
    with runner(zygote, tmp_path / "third") as third:
        ready(third)


def test_forks_count_as_processes_of_kopt(zygote: Zygote, tmp_path: Path) -> None:
    with runner(zygote, tmp_path / "home") as peer:
        ready(peer)
        pid = peer._guarded.pid
        assert {pid, *process_tree.descendants(pid)} <= tenants.own_processes()
    assert until(lambda: pid not in tenants.own_processes())


def test_forked_pids_does_not_wait_for_a_thread_that_awaits_a_fork(
        zygote: Zygote, tmp_path: Path) -> None:
    with runner(zygote, tmp_path / "home") as peer, ThreadPoolExecutor(1) as threads:
        ready(peer)
        process = peer._guarded._process
        assert process.poll() is None, peer._guarded.wait(0.1)
        waiting = threads.submit(process.wait)
        assert process.pid in forked_pids(), (process._pid, process._life.closed)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        assert process.pid in forked_pids(), "a waiting thread must not block others"
        peer.kill()
        assert waiting.result(30) == 0
        assert process.poll() == 0


def test_pid_can_be_read_while_another_thread_awaits_the_fork() -> None:
    (out, _), (err, _), (life, supervisor) = pipes = [os.pipe() for _ in range(3)]
    process = ForkedSupervisor(out, err, life)
    with ThreadPoolExecutor(2) as threads:
        try:
            waiting = threads.submit(process.wait)
            assert until(process._reading.locked)
            pid = threads.submit(lambda: process.pid)
            os.write(supervisor, b"4711\n")
            assert pid.result(30) == 4711 and not waiting.done()
        finally:
            for _, end in pipes:
                os.close(end)
        assert waiting.result(30) == 0


def test_forks_differ_in_memory_layout(zygote: Zygote, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(PROBE.replace('"pid": os.getpid()', LAYOUT))
    home = tmp_path / "home"
    home.mkdir()
    env = clean_env({"OUTSIDE": str(tmp_path)}, home=home)
    addresses = [_run_probe(zygote, tmp_path, env, home)[0]["pid"] for _ in range(3)]
    small, large = zip(*addresses, strict=True)
    assert len(set(small)) > 1 and len(set(large)) > 1, addresses


LAYOUT = '"pid": [__import__("ctypes").addressof(__import__("ctypes").create_string_buffer(n)) ' \
    'for n in (40000, 1 << 22)]'


def open_files(pid: int) -> list[str]:
    """Return the paths of a process's open files, without those that it closes meanwhile."""
    paths = list[str]()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            paths.append(str(link.readlink()))
    return paths


@pytest.mark.slow
def test_zygote_does_not_import_during_a_measurement(tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path / "locks"))
    turnstile = device_lock.turnstile()
    with device_lock.acquire("cpu"):
        waiting = Zygote.start(kind(), yields=turnstile)
        process = waiting._process
        assert process is not None
        maps = Path(f"/proc/{process.pid}/maps")
        assert until(lambda: any("cpu.turn" in name for name in open_files(process.pid)))
        peer = runner(waiting, tmp_path / "home")
        assert b"libtorch" not in maps.read_bytes()
    ready(peer)
    assert b"libtorch" in maps.read_bytes()
    peer.close()
    waiting.close()
