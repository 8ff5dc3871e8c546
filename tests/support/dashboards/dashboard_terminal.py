"""A real dashboard process on a pseudo-terminal: what it paints, when, and how many bytes."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.paths import ROOT


class Terminal:
    """One process on a pty of a given size; `screen` keeps all bytes that it wrote."""

    def __init__(self, argv: Sequence[str], *, columns: int = 80, lines: int = 24,
                 env: Mapping[str, str] | None = None) -> None:
        self.began = time.perf_counter()
        self.screen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(ROOT)
            os.environ.pop("NO_COLOR", None)
            os.environ.update({"TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})})
            os.execvp(argv[0], argv)
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self, seconds: float) -> int:
        """Read what the process writes for some time; return the number of bytes."""
        deadline, count = time.perf_counter() + seconds, 0
        while (left := deadline - time.perf_counter()) > 0:
            if not select.select([self.fd], [], [], left)[0]:
                break
            try:
                data = os.read(self.fd, 1 << 16)
            except OSError:  # the process is gone
                break
            self.screen += data
            count += len(data)
        return count

    def until(self, mark: bytes, limit: float = 30.0) -> float:
        """Read until `mark` has been written; return the seconds since the start."""
        deadline = time.perf_counter() + limit
        while mark not in self.screen:
            if time.perf_counter() > deadline or not select.select(
                    [self.fd], [], [], max(0.0, deadline - time.perf_counter()))[0]:
                raise AssertionError(f"{mark!r} did not come within {limit} s: {self.screen!r}")
            self.screen += os.read(self.fd, 1 << 16)
        return time.perf_counter() - self.began

    def quiet(self, seconds: float, limit: float = 30.0) -> None:
        """Wait until nothing has been written for `seconds`."""
        deadline = time.perf_counter() + limit
        while self.read(seconds):
            if time.perf_counter() > deadline:
                raise AssertionError(f"never quiet for {seconds} s")

    def press(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    @property
    def resident_bytes(self) -> int:
        """Return the resident memory of the process."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def exit_code(self, limit: float = 30.0) -> int:
        """Wait for the end of the process and return its exit code."""
        deadline = time.perf_counter() + limit
        while time.perf_counter() < deadline:
            self.read(0.2)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it runs on: {self.screen[-2000:]!r}")

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def dashboard(workspace: Path, *options: str) -> list[str]:
    """Return the command that opens the dashboard."""
    return [sys.executable, "-m", "kopt_tui", "--workspace", str(workspace), *options]
