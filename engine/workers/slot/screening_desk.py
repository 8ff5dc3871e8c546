"""The engine's end of `kopt evaluate` in a slot: answers one request after another, a few in all.

A request is a datagram on a socket in the slot's folder, which other slots do not see. It brings
the token of its attempt and one end of a pair of sockets for the answer. Any other content is
ignored: a request is always about the slot's own files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from engine.workers.protocol import SlotKopt, Tick
from engine.workers.slot import passed_streams
from harness.errors import Cancelled, EnvironmentFault, KoptError, Refused, os_fault
from harness.formats.quantities import counted
from harness.formats.text import plain
from harness.verdict import Verdict

PROGRAM = Path(__file__).with_name("slot_kopt.py")
SOCKET = "ask"
LIMIT_S = 600.0
"""Seconds that one answer may take, with the wait for a device."""
REFUSED_S = 0.05
"""Seconds of pause after a refused request, so that a flood of requests costs little."""
SEND_S = 5.0

Screen = Callable[[threading.Event, Callable[[str], None]], Verdict]

log = logging.getLogger("kopt.engine")


class _Cancellation(threading.Event):
    """An event: nobody wants the answer any more, or it takes too long; `reason` says which."""

    def __init__(self, attempt: threading.Event, near: socket.socket) -> None:
        super().__init__()
        self._attempt, self._near = attempt, near
        self._until = time.monotonic() + LIMIT_S
        self.waits_for = ""

    def is_set(self) -> bool:
        return bool(self.reason)

    @property
    def reason(self) -> str:
        if self._attempt.is_set():
            return "the attempt has ended"
        if time.monotonic() > self._until:
            return f"no verdict within {LIMIT_S:.0f} s: {self.waits_for or 'it took too long'}"
        with contextlib.suppress(BlockingIOError):
            try:
                if not self._near.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    return "the caller has disconnected"
            except ConnectionError:
                return "the caller has disconnected"
        return ""


class ScreeningDesk:
    """Answers the requests of one attempt; `count` says how many screenings were begun."""

    def __init__(self, screen: Screen, *, most: int, spacing_s: float, tick: Tick,
                 allow: Callable[[], bool]) -> None:
        self.count = 0
        self.token = secrets.token_hex(16)
        self._screen, self._most, self._spacing_s = screen, most, spacing_s
        self._tick, self._allow = tick, allow
        self._ended = threading.Event()
        self._next = 0.0

    @contextmanager
    def opened(self, folder: Path, home: Path) -> Iterator[SlotKopt | None]:
        """Serve inside the `with` block; yield None where the folder cannot hold a socket.

        `home` is the HOME of the worker's processes.
        """
        requests = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with requests:
            try:
                _install(folder, home, requests)
            except OSError as error:
                log.warning("slots have no `kopt evaluate`: %s", os_fault(error))
                yield None
                return
            thread = threading.Thread(target=self._serve, args=(requests,), name="screening",
                                      daemon=True)
            thread.start()
            try:
                yield SlotKopt(folder=str(folder), token=self.token, most=self._most)
            finally:
                self._ended.set()
                with contextlib.suppress(OSError):
                    requests.shutdown(socket.SHUT_RDWR)
                thread.join()

    def _serve(self, requests: socket.socket) -> None:
        while not self._ended.is_set():
            try:
                data, streams = passed_streams.receive(requests, len(self.token) + 1)
            except OSError:
                return
            with contextlib.ExitStack() as stack:
                for stream in streams:
                    stack.enter_context(stream)
                if streams and secrets.compare_digest(data, self.token.encode()):
                    self._take(streams[0])
                else:
                    self._ended.wait(REFUSED_S)

    def _take(self, near: socket.socket) -> None:
        """Answer a request of this slot."""
        cancel = _Cancellation(self._ended, near)
        try:
            code, line = self._answer(cancel)
        except KoptError as error:
            code, line = error.exit_code, _error_line(error)
            self._ended.wait(REFUSED_S)
        except Exception as error:  # the slot's other requests are still answered
            log.exception("no screening")
            code, line = 3, _error_line(EnvironmentFault(
                f"internal error: {type(error).__name__}: {error}"))
        with contextlib.suppress(OSError):
            near.settimeout(SEND_S)
            near.sendall(b"%d\n%s\n" % (code, line))

    def _answer(self, cancel: _Cancellation) -> tuple[int, bytes]:
        """Return the exit code and the verdict. Raises KoptError."""
        if self.count >= self._most:
            raise Refused(f"an attempt may have at most {counted(self._most, 'screening')}",
                          fix="submit what you have: it gets its own verdict")
        if not self._allow():
            raise Refused("the campaign's budget of trials is spent")
        while time.monotonic() < self._next and not cancel.is_set():
            self._ended.wait(0.05)
        if cancel.is_set():
            raise Cancelled(cancel.reason)
        self.count += 1
        title = f"{self.count} of {self._most}"
        self._tick("screening", title, None)

        def on_wait(text: str) -> None:
            cancel.waits_for = text
            self._tick("screening", f"{title}: {text}" if text else title, None)

        try:
            verdict = self._screen(cancel, on_wait)
        finally:
            self._next = time.monotonic() + self._spacing_s
        if reason := cancel.reason:
            raise Cancelled(reason)
        is_right = verdict.correct and all(row.severity != "reject" for row in verdict.audit)
        return 0 if is_right else 1, msgspec.json.encode(verdict)


def environment(kopt: SlotKopt | None, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a slot's command in which it finds its `kopt`."""
    return dict(env) if kopt is None else {
        **env, "PATH": f"{kopt.folder}:{env['PATH']}", "KOPT_SLOT": kopt.token}


def secret(kopt: SlotKopt | None) -> dict[str, str]:
    """Return the token under a name that marks it as secret."""
    return {} if kopt is None else {"slot_token": kopt.token}


def _install(folder: Path, home: Path, requests: socket.socket) -> None:
    """Put the program and the socket into a slot's folder. Raises OSError.

    Login shells, which many agents start, set a PATH of their own: the profile adds the folder.
    """
    for path in (folder, home):
        path.mkdir(parents=True, exist_ok=True)
    (home / ".profile").write_text(f"PATH={shlex.quote(str(folder))}:$PATH\n")
    script = folder / "kopt"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S '
                      f'{shlex.quote(str(PROGRAM))} {shlex.quote(str(folder))} "$@"\n')
    script.chmod(0o755)
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        requests.bind(f"/proc/self/fd/{handle}/{SOCKET}")  # the folder's own path may be too long
    finally:
        os.close(handle)


def _error_line(error: KoptError) -> bytes:
    return msgspec.json.encode({"error": {
        "what": plain(error.what), "where": plain(error.where), "fix": plain(error.fix),
        "exit_code": error.exit_code}})
