"""Each request is served by a fork of its own: no request affects the next."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.benchmark.runs.result_table import CsvReader
from tests.support import paths, processes

PROGRAM = """\
import os, sys, time
from harness.child.supervise import forked_answers

seen = []

def leave_a_daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(100):
                try: os.close(fd)
                except OSError: pass
            time.sleep(1000)
        os._exit(0)

def forge():
    for fd in range(3, 100):
        try: os.write(fd, b'{"forged": 1}\\n')
        except OSError: pass

def work(job):
    seen.append(job["do"])
    exec(job["do"])
    return {"pid": os.getpid(), "seen": seen}

forked_answers.serve(int(sys.argv[1]), work, 1.0)
"""
DEATHS = [
    ("os.kill(os.getpid(), 11)", "crashed (SIGSEGV)"),
    ("os._exit(3)", "exited with 3"),
    ("os._exit(0)", "exited with 0"),
    ("time.sleep(1000)", "ran past its limit of 1 s"),
    ("forge()", "sent an invalid answer"),
]


class ForkingServer:
    """A process that serves each request in a fork."""

    def __init__(self) -> None:
        self.mark = processes.mark()
        self.socket, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(theirs.fileno()), self.mark],
                pass_fds=[theirs.fileno()], cwd=paths.ROOT)
        self.lines = self.socket.makefile("rb")

    def ask(self, do: str) -> dict[str, Any]:
        self.socket.sendall(json.dumps({"do": do}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self.lines.readline())
        assert set(processes.marked(self.mark)) == {self.process.pid}, do
        return answer


def test_requests_do_not_affect_each_other() -> None:
    server = ForkingServer()
    first = server.ask("pass")
    assert first["seen"] == ["pass"] and first["pid"] != server.process.pid
    for do, died in DEATHS:
        assert server.ask(do) == {"died": died}, do
        after = server.ask("pass")
        assert after["seen"] == ["pass"] and after["pid"] != first["pid"]
    assert server.ask("leave_a_daemon()")["seen"] == ["leave_a_daemon()"]
    server.lines.close()
    server.socket.close()
    assert server.process.wait(60) == 0


def test_dead_reader_process_is_replaced(tmp_path: Path) -> None:
    folder, path = tmp_path / "reader", tmp_path / "b.csv"
    path.write_text("m,us\n1,2\n")
    reader = CsvReader(folder)
    first = reader.read(path, "b.csv")
    assert reader.read(path, "b.csv") == first
    reading = processes_in(folder)
    assert reading
    processes.kill(max(reading))
    assert processes.until(lambda: not processes_in(folder))
    assert reader.read(path, "b.csv") == first
    reader.close()
    assert not processes_in(folder)


def processes_in(folder: Path) -> set[int]:
    pids = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cwd").readlink() == folder and processes.alive(int(pid)):
                pids.add(int(pid))
    return pids
