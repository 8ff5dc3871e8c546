"""The process between kopt and an untrusted program.

It receives the job as one JSON line on a control socket. End-of-file on that socket means that the
owner wants the program to end, or has died. The supervisor starts the program in its own session,
forwards a bounded amount of output and enforces the limits. At the end it kills every descendant
before it releases the device lock that it inherited, and answers with one JSON line.
Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

from .descendants import descendants, shared_once, signal_all, usage
from .forwarded_output import ForwardedOutput
from .yield_gate import YieldGate

PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG = 36, 1
TICK_S = 0.02
COUNT_TICK_S = 0.1
ORDERLY_S, END_S = 3.0, 10.0
KEPT = b"kept\n"
"""Tells the owner, after its order `keep`, that no more of the output so far will be forwarded."""
UNREAD_S = 10.0
"""After the end: how long the owner may read nothing, before the rest of the output is dropped."""


def start(job: dict[str, Any], out: int, err: int, report: int) -> int:
    """Fork the program; return its pid. Exit status 127 means that it could not start."""
    parent, keep = os.getpid(), job["passed"]
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for name, limit in job["rlimits"].items():
            number = getattr(resource, name)
            hard = resource.getrlimit(number)[1]
            value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(number, (value, value))
        if keep != job["pass_fds"]:
            from .exec_child import renumbered

            report, keep = renumbered(report, keep, job["pass_fds"])
        low = 3
        for fd in sorted([*keep, report]):
            os.closerange(low, fd)
            low = fd + 1
        os.closerange(low, 4096)
        for fd in keep:
            os.set_inheritable(fd, True)
        os.chdir(job["cwd"])
        if job["confine"]:
            from . import confine

            try:
                confine.enter(job["confine"]["writable"], job["confine"]["network"],
                              report, cards=job["confine"]["cards"],
                              nodes=job["confine"]["nodes"], hidden=job["hidden"],
                              binds=job["confine"]["binds"], reach=job["confine"]["reach"])
            except OSError as error:
                if job["confine"]["required"]:
                    raise
                os.write(2, f"kopt: not confined: {error}\n".encode())
            os.chdir(job["cwd"])
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        if job["program"]:
            from .exec_child import exec_child

            exec_child(job["program"], keep, job["env"], job["words"])
        os.execvpe(job["argv"][0], job["argv"], job["env"])
    except BaseException as error:
        os.write(2, f"kopt: cannot start {job['argv'][0]}: {error}\n".encode())
    os._exit(127)


class Supervisor:
    """Runs one job.

    `held` are the descriptors of device locks to keep until its end; `orders` are the bytes that
    followed the job on its socket.
    """

    def __init__(self, control: socket.socket, job: dict[str, Any], held: list[int],
                 orders: bytes = b"") -> None:
        self.control, self.job = control, job
        self.began = time.monotonic()
        self.gate = YieldGate(job["yields"])
        self.ended = ""
        self.returncode: int | None = None
        self.peak_bytes = 0
        self.leftover = 0
        self.held = held
        self.kept_until = math.inf
        """The `time.monotonic` at which a kept program ends unless an owner sends an order."""
        self.orders = b""
        self._obey(orders)

    def run(self) -> dict[str, Any]:
        if self._wait_for_turn():
            self._supervise()
        return {"returncode": self.returncode, "ended": self.ended or "exit",
                "wall_s": time.monotonic() - self.began,
                "stopped_s": self.gate.total_stopped_s(),
                "peak_bytes": self.peak_bytes, "leftover": self.leftover,
                "output_bytes": sum(stream.seen for stream in getattr(self, "streams", []))}

    def _wait_for_turn(self) -> bool:
        while not self.gate.enter():
            ready, _, _ = select.select([self.control], [], [], TICK_S)
            if ready:
                self._receive_orders()
            if self.ended:
                return False
        self.began = time.monotonic()
        return True

    def _supervise(self) -> None:
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        self.report, report_write = os.pipe()
        os.set_blocking(self.report, False)
        child = start(self.job, out_write, err_write, report_write)
        for fd in (out_write, err_write, report_write, *self.job["passed"]):
            os.close(fd)
        self.streams = [ForwardedOutput(out_read, 1), ForwardedOutput(err_read, 2)]
        pidfd = os.pidfd_open(child)
        next_count = 0.0
        while not self.ended:
            self._select([self.control.fileno(), pidfd])
            if self._exited(child):
                break
            now = time.monotonic()
            self.gate.tick()
            if now - self.began - self.gate.total_stopped_s() > self.job["wall_s"]:
                self.ended = "timeout"
            if now > self.kept_until:
                self.ended = "killed"
            if sum(stream.seen for stream in self.streams) > self.job["output_bytes"]:
                self.ended = "output"
            if now >= next_count:
                next_count = now + COUNT_TICK_S
                self._count()
        self._end(child)

    def _count(self) -> None:
        resident, processes = usage()
        limit = self.job["memory_bytes"] or math.inf
        if resident > limit:
            resident = shared_once()
        self.peak_bytes = max(self.peak_bytes, resident)
        if resident > limit:
            self.ended = "memory"
        if processes > self.job["processes"]:
            self.ended = "processes"

    def _select(self, watched: list[int]) -> None:
        reads = watched + [s.source for s in self.streams if s.open]
        writes = [s.sink for s in self.streams if s.pending]
        left = self.began + self.job["wall_s"] + self.gate.total_stopped_s() - time.monotonic()
        tick = TICK_S if self.job["yields"] else COUNT_TICK_S
        readable, writable, _ = select.select(reads, writes, [], max(0.001, min(left, tick)))
        for stream in self.streams:
            if stream.source in readable:
                stream.read(self.job["output_bytes"])
            if stream.sink in writable:
                stream.write()
        if self.control.fileno() in readable:
            self._receive_orders()

    def _receive_orders(self) -> None:
        """Receive device locks and orders from the owner; end-of-file ends the program."""
        data, fds, _, _ = socket.recv_fds(self.control, 64, 64)
        if not data:
            self.ended = "killed"
        self._obey(data)
        self.held += fds  # after the orders, one of which may release what is held

    def _obey(self, data: bytes) -> None:
        """Carry out each whole line.

        `run` exempts the program from the yield gate, `yield` ends the exemption, `wall_s` sets
        another time limit, and `keep` keeps the program for another owner.
        """
        *lines, self.orders = (self.orders + data).split(b"\n")
        for line in lines:
            word, _, value = line.partition(b" ")
            self.kept_until = math.inf
            if word in (b"run", b"yield"):
                self.gate.exempt = word == b"run"
            elif word == b"wall_s":
                self.job["wall_s"] = float(value)
            elif word == b"keep":
                self._keep(float(value))

    def _keep(self, seconds: float) -> None:
        """Wait for another owner: release the locks, forward what was printed, and answer KEPT."""
        for fd in self.held:
            os.close(fd)
        self.held.clear()
        for stream in self.streams:
            stream.forward_all(self.job["output_bytes"])
            stream.forget()
        with contextlib.suppress(OSError):
            self.control.sendall(KEPT)
        self.kept_until = time.monotonic() + seconds

    def _exited(self, child: int) -> bool:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid == 0:
            return False
        self.returncode = os.waitstatus_to_exitcode(status)
        return True

    def _end(self, child: int) -> None:
        """Kill and reap all descendants, and forward the rest of the output."""
        if self.returncode is not None:
            self.leftover = len([s for s in descendants().values() if s not in "ZX"])
        began = time.monotonic()
        while (spent := time.monotonic() - began) < END_S:
            signal_all(signal.SIGSTOP)  # a stopped process cannot fork
            alive = signal_all(signal.SIGKILL, lowest=spent < ORDERLY_S)
            try:
                while True:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if pid == 0:
                        break
                    if pid == child and self.returncode is None:
                        self.returncode = os.waitstatus_to_exitcode(status)
            except ChildProcessError:
                if alive == 0:
                    break
            select.select([], [], [], 0.001)
        self._read_report()
        for stream in self.streams:
            stream.forward_all(self.job["output_bytes"])
            while stream.pending and select.select([], [stream.sink], [], UNREAD_S)[1]:
                stream.write()

    def _read_report(self) -> None:
        """Read a confined program's exit status from the process that waited for it."""
        with contextlib.suppress(BlockingIOError):  # a process survived SIGKILL
            if report := os.read(self.report, 64):
                status, others = map(int, report.split())
                self.leftover += others
                if self.returncode is not None:
                    self.returncode = os.waitstatus_to_exitcode(status)


def main(descriptor: int, passed: list[int] | None = None, held: Sequence[int] = ()) -> None:
    """Serve one job; `passed` are the program's descriptors if a zygote received them.

    `held` are device locks that stay open until the job ends or its owner leaves it.
    """
    control = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    line, locks = b"", list(held)
    while b"\n" not in line:  # device locks may arrive with the last part of the job
        data, received, _, _ = socket.recv_fds(control, 65536, 64)
        if not data:
            return
        line += data
        locks += received
    line, _, orders = line.partition(b"\n")
    job = json.loads(line)
    job["passed"] = job["pass_fds"] if passed is None else passed
    answer = Supervisor(control, job, locks, orders).run()
    with contextlib.suppress(OSError):  # the owner may be gone
        control.sendall(json.dumps(answer).encode() + b"\n")
