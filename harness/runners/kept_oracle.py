"""The oracle of a verdict, kept for the next verdict of its campaign on the same device.

On a card, starting one takes half a second, ending it a quarter. Between two harness processes its
descriptors wait in a socket pair, which the engine makes and every harness process inherits. The
oracle ends with the last process that holds the socket pair, or when no process takes it in KEPT_S.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.formats.json_codec import from_json, to_json
from harness.isolation import process_tree
from harness.isolation.supervisor_start import KeptProcess

KEPT_S = 120.0
"""Seconds that a kept oracle waits: longer than the pauses between verdicts in a queue, but not
endless, since it holds half a GB of a card, and the weights of the reference."""
VARIABLE = "KOPT_ORACLE"
"""Environment variable with the numbers of the shelf's descriptors in a harness process."""
MOST_BYTES, MOST_DESCRIPTORS = 1 << 16, 8


@dataclass(frozen=True, kw_only=True)
class KeptOracle:
    """An idle oracle: its supervisor's pid, a hash of what it was started with, its libraries."""

    pid: int
    key: str
    libraries: Mapping[str, str]


class OracleShelf:
    """Keeps at most one idle oracle. Only one process at a time may use the shelf."""

    def __init__(self, ends: tuple[socket.socket, socket.socket] | None = None) -> None:
        self._made = ends

    @classmethod
    def inherited(cls) -> OracleShelf | None:
        """Return the shelf that was passed to this process, if any."""
        passed = os.environ.get(VARIABLE, "").split()
        return None if not passed else cls((socket.socket(fileno=os.dup(int(passed[0]))),
                                            socket.socket(fileno=os.dup(int(passed[1])))))

    @property
    def _socket_pair(self) -> tuple[socket.socket, socket.socket]:
        if self._made is None:
            self._made = socket.socketpair(socket.AF_UNIX,
                                           socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        return self._made

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that a process inherits; VARIABLE has their numbers."""
        return [end.fileno() for end in self._socket_pair]

    @property
    def variable(self) -> str:
        """The value of VARIABLE for a process that inherits the descriptors."""
        return " ".join(map(str, self.descriptors))

    @property
    def holds_one(self) -> bool:
        """Whether the shelf has a running oracle."""
        return bool(self.supervisor())

    def supervisor(self) -> int:
        """Return the pid of the idle oracle's supervisor, 0 if none runs."""
        if self._made is None:
            return 0
        try:
            data = self._socket_pair[1].recv(MOST_BYTES, socket.MSG_PEEK)
        except OSError:
            return 0
        pid = from_json(data, KeptOracle).pid if data else 0
        return pid if Path(f"/proc/{pid}").exists() else 0

    def processes(self) -> set[int]:
        """Return the pids of the idle oracle and of its supervisor."""
        supervisor = self.supervisor()
        return {supervisor, *process_tree.descendants(supervisor)} if supervisor else set()

    def put(self, kept: KeptProcess, key: str, libraries: Mapping[str, str]) -> bool:
        """Store an oracle for the next process; return whether that worked."""
        label = KeptOracle(pid=kept.pid, key=key, libraries=libraries)
        try:
            socket.send_fds(self._socket_pair[0], [to_json(label)], kept.descriptors)
        except OSError:  # the engine has ended
            return False
        return True

    def take(self, key: str) -> tuple[KeptProcess, Mapping[str, str]] | None:
        """Return the oracle that was started with `key`, and its libraries; end any other."""
        taken = None
        with contextlib.suppress(BlockingIOError):
            while True:
                data, descriptors, _, _ = socket.recv_fds(self._socket_pair[1], MOST_BYTES,
                                                          MOST_DESCRIPTORS)
                if not data:
                    break
                label = from_json(data, KeptOracle)
                kept = KeptProcess(label.pid, *descriptors)
                for descriptor in descriptors:
                    os.set_inheritable(descriptor, False)
                if label.key == key and kept.is_guarded:
                    taken = kept, label.libraries
                    continue
                for descriptor in descriptors:
                    os.close(descriptor)
        return taken

    def clear(self) -> None:
        """End the idle oracle."""
        if self._made is not None:
            self.take("")

    def close(self) -> None:
        """Close the shelf's sockets; the idle oracle ends once no other process holds them."""
        for end in self._made or ():
            end.close()
