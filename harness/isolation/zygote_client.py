"""Fork guarded programs from a process that has imported what they need: 0.1 s instead of seconds.

A zygote serves one interpreter, environment and language, to every process that holds its socket:
the engine keeps one for a campaign and passes it to its harness processes. It ends when no process
holds the socket any more.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import subprocess
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import harness
from harness.formats.json_codec import to_json
from harness.isolation.device_lock import Turnstile

PROGRAM = Path(harness.__file__).parent / "child" / "__main__.py"
MOST_DESCRIPTORS = 28
"""Most descriptors of a program and its locks: a packet takes 32, four for the supervisor."""
VARIABLE = "KOPT_ZYGOTE"
"""Environment variable that lists the zygotes passed to a harness process."""


@dataclass(frozen=True, kw_only=True)
class ZygoteKind:
    """What a zygote serves: an interpreter, a language (its imports) and an environment.

    `modules` are imported instead of the language's; the folder `path` is searched for them, too.
    """

    python: str
    language: str
    env: tuple[tuple[str, str], ...]
    modules: tuple[str, ...] = ()
    path: str = ""

    @property
    def name(self) -> str:
        """A hash that is equal for equal kinds in all processes."""
        return hashlib.sha256(to_json(self)).hexdigest()[:16]


class ForkedSupervisor:
    """A supervisor that a zygote forked, with the interface of `subprocess.Popen`."""

    def __init__(self, stdout: int, stderr: int, life: int, pid: int = 0) -> None:
        self.stdout, self.stderr = os.fdopen(stdout, "rb", 0), os.fdopen(stderr, "rb", 0)
        self._life = os.fdopen(life, "rb", 0)
        self._reading = threading.Lock()
        self._pid = pid
        _living.add(self)

    @property
    def pid(self) -> int:
        """The supervisor's pid; waits for it. 0 if it ended before it reported one."""
        while not self._pid and not self._life.closed:
            self._read(0.05, once=True)  # a thread in `wait` may read the pid first
        return self._pid

    @property
    def known_pid(self) -> int:
        """The supervisor's pid; 0 if it has not reported it yet."""
        self._read(0.0, once=True)
        return self._pid

    def poll(self) -> int | None:
        """Return 0 once the supervisor has ended, None before."""
        self._read(0.0)
        return 0 if self._life.closed else None

    def wait(self) -> int:
        """Wait until the supervisor and all its descendants have ended."""
        self._read(None)
        return 0

    @property
    def descriptors(self) -> tuple[int, int, int]:
        """The pipes of its two outputs, and the one that is closed when it ends."""
        return self.stdout.fileno(), self.stderr.fileno(), self._life.fileno()

    def printed(self) -> bytes:
        """Return the output that can be read now: standard output, then standard error."""
        readable, _, _ = select.select([self.stdout, self.stderr], [], [], 0)
        return b"".join(os.read(pipe.fileno(), 1 << 20) for pipe in readable)

    def let_go(self) -> None:
        """Close this process's ends of the pipes; the supervisor continues."""
        for pipe in (self.stdout, self.stderr, self._life):
            pipe.close()

    def _read(self, timeout_s: float | None, *, once: bool = False) -> None:
        """Read the life pipe: the pid, then its end, which means that the supervisor has ended.

        Returns without reading if another thread reads the pipe for longer than `timeout_s`.
        """
        if not self._reading.acquire(timeout=-1 if timeout_s is None else timeout_s):
            return
        try:
            while not self._life.closed and select.select([self._life], [], [], timeout_s)[0]:
                if line := self._life.readline():
                    self._pid = int(line)
                    if once:
                        return
                else:
                    self._life.close()
        finally:
            self._reading.release()


_living: weakref.WeakSet[ForkedSupervisor] = weakref.WeakSet()


def forked_pids() -> set[int]:
    """Return the pids of the forked supervisors of this process that may still run."""
    return {pid for supervisor in list(_living)
            if supervisor.poll() is None and (pid := supervisor.known_pid)}


class Zygote:
    """A process that forks programs of one kind."""

    def __init__(self, kind: ZygoteKind, channel: socket.socket,
                 process: subprocess.Popen[bytes] | None = None, tenancy: int = -1) -> None:
        self.kind, self._channel, self._process = kind, channel, process
        self._tenancy = tenancy

    @classmethod
    def start(cls, kind: ZygoteKind, *, yields: Turnstile | None = None) -> Zygote:
        """Start a zygote without waiting for its imports; requests meanwhile are queued."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [kind.python, "-I", str(PROGRAM), "supervise.zygote", str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=dict(kind.env), pass_fds=[theirs.fileno()], start_new_session=True, cwd="/")
        ours.sendall(to_json({"language": kind.language, "modules": kind.modules, "path": kind.path,
                              "yields": list(yields.paths) if yields else None}))
        return cls(kind, ours, process)

    @classmethod
    def inherited(cls, kind: ZygoteKind) -> Zygote | None:
        """Return the zygote that was passed to this process; None if none of this kind was."""
        for passed in os.environ.get(VARIABLE, "").split():
            number, tenancy, name = passed.split(":")
            if name == kind.name:
                return cls(kind, socket.socket(fileno=os.dup(int(number))), tenancy=int(tenancy))
        return None

    @property
    def descriptor(self) -> int:
        return self._channel.fileno()

    def variable(self, tenancy: int) -> str:
        """Return a word of VARIABLE for a process that gets the descriptor.

        It also gets the descriptor `tenancy`, which every process forked for it holds to its end.
        """
        return f"{self.descriptor}:{tenancy}:{self.kind.name}"

    @property
    def tenancy(self) -> list[int]:
        """The descriptor that processes forked for the owner hold to their end, if there is one."""
        return [self._tenancy] if self._tenancy >= 0 else []

    @property
    def alive(self) -> bool:
        """Whether the zygote runs, as far as this process knows."""
        return self._process is None or self._process.poll() is None

    def fork(self, control: socket.socket, passed: Sequence[int], held: Sequence[int],
             ) -> ForkedSupervisor | None:
        """Fork a supervisor that serves `control`; return None if the zygote has ended.

        `passed` are the program's descriptors, `held` those of device locks. Also returns None if
        they are more than a packet takes.
        """
        more = [*passed, *held, *self.tenancy]
        if len(more) > MOST_DESCRIPTORS:
            return None
        out, err, life = os.pipe(), os.pipe(), os.pipe()
        try:
            socket.send_fds(self._channel, [to_json({"passed": len(passed)})],
                            [control.fileno(), out[1], err[1], life[1], *more])
        except OSError:
            for fd in (out[0], err[0], life[0]):
                os.close(fd)
            return None
        finally:
            for fd in (out[1], err[1], life[1]):
                os.close(fd)
        return ForkedSupervisor(out[0], err[0], life[0])

    def let_go(self) -> None:
        """Close the socket; the zygote ends once no other process holds one."""
        with contextlib.suppress(OSError):
            self._channel.close()

    def close(self) -> None:
        """Close the socket, and end the zygote if it was started here; its forks continue."""
        self.let_go()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class WarmStart:
    """Starts a zygote at the first request and again after it has died. Thread-safe.

    A zygote of this kind that was passed to this process is used instead.
    """

    def __init__(self, kind: ZygoteKind | None, *, yields: Turnstile | None = None) -> None:
        self._kind, self._yields = kind, yields
        self._zygote: Zygote | None = None
        self._lock = threading.Lock()
        self._closed = False

    def zygote(self) -> Zygote | None:
        """Return the zygote; None if nothing needs importing, or after `close`."""
        with self._lock:
            if self._closed:
                return None
            if self._zygote is not None and not self._zygote.alive:
                self._zygote.close()
                self._zygote = None
            if self._zygote is None and self._kind is not None:
                self._zygote = Zygote.inherited(self._kind) or \
                    Zygote.start(self._kind, yields=self._yields)
            return self._zygote

    def let_go(self) -> None:
        """Close the zygote's socket in a fork of the process that started it; takes no lock."""
        if self._zygote is not None:
            self._zygote.let_go()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._zygote is not None:
                self._zygote.close()
            self._zygote = None
