"""A guarded child that answers questions: one JSON line out, one back, over a socket of its own.

The socket is no standard stream, so nothing that a kernel prints can pass for an answer.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import Cancelled, EnvironmentFault, KoptError
from harness.formats.json_codec import ConvertError, loads, to_json
from harness.formats.text import plain
from harness.isolation.device_lock import DeviceLock, Turnstile
from harness.isolation.guard import Confine, Guarded, Limits, ProcessOutcome, clean_env
from harness.isolation.zygote_client import PROGRAM, Zygote

MAX_ANSWER = 16 << 20


class PeerError(KoptError):
    """The child answered that the request failed; `what` is its own last line, sanitised."""

    exit_code = 1
    of = ""
    """What the child is called, where it has a name."""


class PeerDied(KoptError):
    """The child ended instead of answering."""

    exit_code = 1

    def __init__(self, outcome: ProcessOutcome, limits: Limits, *, nonsense: bool = False,
                 of: str = "") -> None:
        ended = outcome.describe(limits)
        super().__init__("sent an invalid answer" if nonsense else ended)
        self.outcome, self.of = outcome, of


class Peer:
    """One child program (of `harness/child`) under the guard, asked in turn.

    `asked_ns` and `elapsed_ns` are this process's own clock over the last question.
    """

    def __init__(self, program: str, *, cwd: Path, limits: Limits, python: str | None = None,
                 env: Mapping[str, str] | None = None, confine: Confine | None = None,
                 lock: DeviceLock | None = None, yields: Turnstile | None = None,
                 bare: bool = False, zygote: Zygote | None = None,
                 cancel: threading.Event | None = None, name: str = "") -> None:
        self.limits, self.name = limits, name
        self.elapsed_ns = 0
        self._cancel = cancel
        self._buffer = bytearray()
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(0.1)
        flags = ["-I", "-S"] if bare else ["-I"]
        argv = [python or sys.executable, *flags, str(PROGRAM), program, str(theirs.fileno())]
        with theirs:
            self._guarded = Guarded(argv, cwd=cwd, env=clean_env() if env is None else env,
                                    limits=limits, confine=confine, lock=lock, yields=yields,
                                    pass_fds=[theirs.fileno()], zygote=zygote, program=program)

    def ask(self, op: str, **fields: object) -> dict[str, Any]:
        """Send one question and wait for its answer.

        Raises PeerError when the child says it failed, PeerDied when it crashed, hung past its
        limit or talked nonsense.
        """
        self.send(op, **fields)
        return self.receive()

    def pause(self) -> None:
        """Stop the child and everything below it until `resume`."""
        self._guarded.pause()

    def resume(self) -> None:
        self._guarded.resume()

    def hold(self, lock: DeviceLock) -> None:
        """Have the guard of a child that was started without hold a device's lock too, until
        everything below it is dead.
        """
        self._guarded.hold(lock)

    def send(self, op: str, **fields: object) -> None:
        line = to_json({"op": op, **fields}) + b"\n"
        self.asked_ns = time.perf_counter_ns()
        try:
            self._socket.settimeout(10.0)
            self._socket.sendall(line)
            self._socket.settimeout(0.1)
        except OSError:
            raise self._died() from None

    def receive(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                if self._cancel is not None and self._cancel.is_set():
                    self._guarded.kill()
                continue
            except OSError:
                data = b""
            if not data or len(self._buffer) > MAX_ANSWER:
                raise self._died(nonsense=bool(data))
            self._buffer += data
        self.elapsed_ns = time.perf_counter_ns() - self.asked_ns
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        try:
            answer = loads(line)
        except ConvertError:
            answer = None
        if not isinstance(answer, dict):
            raise self._died(nonsense=True)
        if "error" in answer:
            failure = PeerError(" ".join(plain(str(answer["error"])).split()))
            failure.of = self.name
            raise failure
        return answer

    def _died(self, *, nonsense: bool = False) -> PeerDied | Cancelled | EnvironmentFault:
        self._socket.close()
        try:
            outcome = self._guarded.wait(timeout_s=2.0)
        except TimeoutError:
            self._guarded.kill()
            outcome = self._guarded.wait()
        if self._cancel is not None and self._cancel.is_set():
            return Cancelled("stopped")
        if self._guarded.lost:
            return EnvironmentFault("the process that runners are forked off has died",
                                    fix="try again")
        nonsense = nonsense and outcome.ended in ("exit", "killed")  # else there is more to say
        return PeerDied(outcome, self.limits, nonsense=nonsense, of=self.name)

    def kill(self) -> None:
        """Begin to end the child, without waiting for it as `close` does."""
        self._guarded.kill()

    def close(self) -> ProcessOutcome:
        """End the child and return how it ended."""
        self._socket.close()
        self._guarded.kill()
        return self._guarded.wait()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
