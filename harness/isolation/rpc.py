"""Requests to a guarded child: one JSON line out, one JSON line back, over a separate socket.

Output that a kernel prints goes to the standard streams and cannot be taken for an answer.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import Cancelled, EnvironmentFault, KoptError
from harness.formats.json_codec import ConvertError, convert, loads, to_json
from harness.formats.text import one_line, plain
from harness.isolation.confinement import Confine
from harness.isolation.device_lock import DeviceLock, Turnstile
from harness.isolation.guard import Guarded, clean_env
from harness.isolation.process_outcome import Limits, ProcessOutcome
from harness.isolation.process_tree import CpuTime
from harness.isolation.send_times import SendTimes
from harness.isolation.supervisor_start import KeptProcess
from harness.isolation.zygote_client import PROGRAM, Zygote

MAX_ANSWER = 16 << 20
MOST_DESCRIPTORS = 32
INVALID_ANSWER = "sent an invalid answer"
T = TypeVar("T")


class PeerError(KoptError):
    """The child reported that a request failed; `what` is its error in one line, sanitised."""

    exit_code = 1
    peer = ""
    """Name of the child, if it has one."""
    kind = ""
    """Name of the exception, as the child reports it."""


class NotJudgedHere(PeerError):
    """This machine cannot run what the child was asked to; `what` says why."""


NEEDS_GPU = "NeedsGpu"
"""The exception of `harness/child/interpreter/interpret.py`."""


class PeerDied(KoptError):
    """The child ended, or sent an invalid answer, instead of answering."""

    exit_code = 1

    def __init__(self, outcome: ProcessOutcome, limits: Limits, *, invalid: bool = False,
                 peer: str = "") -> None:
        super().__init__(INVALID_ANSWER if invalid else
                         outcome.describe(limits) + outcome.crash_clue)
        self.outcome, self.peer = outcome, peer


def decode_answer(answer: object, kind: type[T]) -> T:
    """Convert an answer of a child, or a part of one. Raises PeerError if it does not fit."""
    try:
        return convert(answer, kind)
    except ConvertError as error:
        raise PeerError(f"{INVALID_ANSWER}: {plain(str(error), 200)}") from None


class Peer:
    """A guarded child program (of `harness/child`) that serves requests one after another.

    `asked_ns` and `elapsed_ns` time the last request by this process's own clock. `on_ending` is
    called before the child is ended, `on_ended` after it has ended; either may be called twice.
    With `kept`, takes over a child that an earlier process left, instead of starting one.
    """

    def __init__(self, program: str, *, cwd: Path, limits: Limits, python: str | None = None,
                 env: Mapping[str, str] | None = None, confine: Confine | None = None,
                 lock: DeviceLock | None = None, yields: Turnstile | None = None,
                 bare: bool = False, zygote: Zygote | None = None,
                 cancel: threading.Event | None = None, name: str = "",
                 on_ending: Callable[[], None] | None = None,
                 on_ended: Callable[[], None] | None = None,
                 takes_descriptors: bool = False, kept: KeptProcess | None = None) -> None:
        self.limits, self.name = limits, name
        self.key = b""
        """The key that seals a runner's reports of time; empty if it has none."""
        self.stamps: SendTimes | None = None
        """The times, by the operating system, of the messages with which a runner announces that
        timed calls begin or end; None if it stamps no messages."""
        self._on_ending = on_ending or (lambda: None)
        self._on_ended = on_ended or (lambda: None)
        self.elapsed_ns = 0
        self._cancel = cancel
        self._buffer = bytearray()
        self.received: list[int] = []
        """File descriptors that came with the last answer, if the child is trusted with that."""
        self._takes_descriptors = takes_descriptors
        flags = ["-I", "-u"]  # unbuffered: its output is kept when it is killed
        if bare:
            flags.append("-S")
        self._socket, theirs = (socket.socket(fileno=kept.requests), None) if kept else \
            socket.socketpair()
        self._socket.settimeout(0.1)
        passed = [theirs.fileno()] if theirs is not None else []
        argv = [python or sys.executable, *flags, str(PROGRAM), program, *map(str, passed)]
        self._guarded = Guarded(argv, cwd=cwd, env=clean_env() if env is None else env,
                                limits=limits, confine=confine, lock=lock, yields=yields,
                                pass_fds=passed, zygote=zygote, program=program, name=name,
                                kept=kept)
        if theirs is not None:
            theirs.close()

    def ask(self, op: str, **fields: object) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises PeerError if the child reports a failure, PeerDied if it crashed, hung past its
        limit or sent an invalid answer.
        """
        self.send(op, (), **fields)
        return self.receive()

    def exempt(self, exempt: bool) -> None:
        """Let a yielding child run during this process's measurements; False ends the exemption."""
        self._guarded.exempt(exempt)

    def pause(self, *, stops_itself: bool = False) -> None:
        """Stop the child and its descendants until `resume`; see `Guarded.pause`."""
        self._guarded.pause(stops_itself=stops_itself)

    def resume(self) -> None:
        self._guarded.resume()

    def cpu_times(self) -> dict[int, CpuTime]:
        """Return the CPU time of the paused child and its descendants, by pid."""
        return self._guarded.cpu_times()

    def hold(self, lock: DeviceLock) -> None:
        """Pass a device lock to the guard of a child that was started without it."""
        self._guarded.hold(lock)

    def send(self, op: str, descriptors: Sequence[int] = (), /, **fields: object) -> None:
        """Send one request, with file descriptors for a child that expects them."""
        line = to_json({"op": op, **fields}) + b"\n"
        self.asked_ns = time.perf_counter_ns()
        try:
            self._socket.settimeout(10.0)
            if descriptors:
                line = line[socket.send_fds(self._socket, [line], list(descriptors)):]
            self._socket.sendall(line)
            self._socket.settimeout(0.1)
        except OSError:
            raise self._died() from None

    def post(self, data: bytes) -> None:
        """Send bytes that the child reads while it handles a request."""
        try:
            self._socket.sendall(data)
        except OSError:
            raise self._died() from None

    def receive(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            try:
                data = self._receive_some()
            except TimeoutError:
                self._guarded.wake()
                if self._cancel is not None and self._cancel.is_set():
                    self._guarded.kill()
                continue
            except OSError:
                data = b""
            if not data or len(self._buffer) > MAX_ANSWER:
                raise self._died(invalid=bool(data))
            self._buffer += data
        self.elapsed_ns = time.perf_counter_ns() - self.asked_ns
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer = bytearray(rest)
        try:
            answer = loads(line)
        except ConvertError:
            answer = None
        if not isinstance(answer, dict):
            raise self._died(invalid=True)
        if "error" in answer:
            kind, text = str(answer.get("kind", "")), one_line(str(answer["error"]))
            failure = NotJudgedHere(text.removeprefix(f"{kind}: ")) if kind == NEEDS_GPU else \
                PeerError(text)
            failure.peer, failure.kind = self.name, kind
            raise failure
        return answer

    def _receive_some(self) -> bytes:
        if not self._takes_descriptors:
            return self._socket.recv(1 << 16)
        data, received, _, _ = socket.recv_fds(self._socket, 1 << 16, MOST_DESCRIPTORS)
        self.received += received
        return data

    def take_received(self) -> list[int]:
        """Return the received file descriptors; the caller closes them."""
        received, self.received = self.received, []
        return received

    def _died(self, *, invalid: bool = False) -> PeerDied | Cancelled | EnvironmentFault:
        self._socket.close()
        try:
            outcome = self._guarded.wait(timeout_s=2.0)
        except TimeoutError:
            self._guarded.kill()
            outcome = self._guarded.wait()
        self._on_ending()
        self._on_ended()
        if self._cancel is not None and self._cancel.is_set():
            return Cancelled("stopped")
        if self._guarded.never_started:
            return EnvironmentFault("the process that forks the runners has died",
                                    fix="try again")
        # report a crash or an exceeded limit rather than the invalid answer that it caused
        invalid = invalid and outcome.ended in ("exit", "killed")
        return PeerDied(outcome, self.limits, invalid=invalid, peer=self.name)

    def kill(self) -> None:
        """End the child; unlike `close`, do not wait until it has ended."""
        self._on_ending()
        self._guarded.kill()

    def leave(self, seconds: float, give: Callable[[KeptProcess], bool]) -> bool:
        """Leave the child to a new owner; return whether that worked. See `Guarded.leave`."""
        has_left = self._guarded.leave(self._socket.fileno(), seconds, give)
        if has_left:
            self._socket.close()
        return has_left

    def close(self) -> ProcessOutcome:
        """End the child and return how it ended."""
        self._on_ending()
        self._socket.close()
        self._guarded.kill()
        outcome = self._guarded.wait()
        self._on_ended()
        if self.stamps is not None:
            self.stamps.close()
        return outcome

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
