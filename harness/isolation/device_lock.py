"""Machine-wide locks, one per device for all users, and the turnstile of each device.

A lock is a `flock` on a file in one directory, so the kernel releases it when its holder ends. The
holder passes its descriptors to the supervisors that it starts: the lock is held until the last of
them has killed its job.

A cleaner of /tmp may remove a locked file, and the next process would lock a new one. Therefore a
lock counts only while its file is the one at its path, and it has a second part that no cleaner
removes: a bound address in Linux's abstract socket namespace. Containers with separate network
namespaces do not share that address: between them only the file counts.

Each device has three lock files: `next`, `turn`, `active`. The first process in line locks `next`
until it has `turn`. So a process that frees a lock and requests it again comes after the first.

Nothing may run beside a measurement: on the CPU no process of kopt, on a card no agent that may use
the card. The process that measures holds `turn` exclusively. Yielding processes
hold `active` shared while they run, and stop while `turn` is taken.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import Cancelled, EnvironmentFault
from harness.formats.text import plain

POLL_S = 0.004
_UUID = re.compile(r"^(GPU-[0-9a-f]{8})-[0-9a-f-]+$")
OWNER = "KOPT_CAMPAIGN"
"""The environment variable with a process's campaign, shown to those who wait for its lock."""
SETTLING_S = 0.25
"""Seconds until a card's utilization shows that kernels have started, or that all have ended.

NVML renews it every 0.2 s: see `bench/results/stopped-kernels-h200-2026-11-23.txt`.
"""
DRAIN_S = 10.0
"""Seconds that a card may take to end the kernels that a stopped process has launched."""


def lock_directory() -> Path:
    """Return the machine-wide directory of lock files (or KOPT_LOCK_DIR); make it if necessary."""
    path = Path(os.environ.get("KOPT_LOCK_DIR", "/tmp/kopt-locks"))
    try:
        path.mkdir(mode=0o1777, parents=True, exist_ok=True)
        if path.stat().st_uid == os.geteuid():
            path.chmod(0o1777)
    except OSError as error:
        raise EnvironmentFault(f"cannot make the lock directory: {error.strerror}",
                               where=str(path),
                               fix="set KOPT_LOCK_DIR to a shared folder") from None
    return path


@dataclass(frozen=True)
class Turnstile:
    """The lock files through which yielding processes stop for a measurement."""

    paths: tuple[str, str]

    def describe_wait(self) -> str:
        """Return which other process's measurement the yielding processes wait for; "" if none."""
        device = Path(self.paths[0]).stem
        return "" if holder(device) in (None, os.getpid()) else _describe_holder(device)


@functools.lru_cache(maxsize=16)
def shared_wait(turnstile: Turnstile, _period: int) -> str:
    """Return `describe_wait`, computed once per period for all callers that share a turnstile."""
    return turnstile.describe_wait()


@dataclass(frozen=True)
class DeviceLock:
    """A held lock; `fds` are passed to the supervisors of jobs that run under it."""

    fds: tuple[int, ...]

    def release(self) -> None:
        for fd in reversed(self.fds):
            os.close(fd)

    def __enter__(self) -> DeviceLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def turnstile(device: str = "cpu") -> Turnstile:
    """Return the turnstile of a device, by its lock's name; create its files."""
    names = (f"{device}.turn", f"{device}.active")
    paths = []
    for name in names:
        fd, path = open_file(name)
        os.close(fd)
        paths.append(str(path))
    return Turnstile((paths[0], paths[1]))


def acquire(*devices: str, timeout_s: float | None = None,
            cancel: threading.Event | None = None,
            on_wait: Callable[[str], None] | None = None,
            is_idle: Callable[[], bool | None] | None = None) -> DeviceLock:
    """Wait for the exclusive lock on one or several devices and take it.

    All callers must name several devices in the same order, to avoid a deadlock. Also waits until
    every yielding process has stopped, and on cards at most DRAIN_S until `is_idle` returns that
    the kernels of stopped processes have ended (None: unknown, do not wait). Raises
    EnvironmentFault after `timeout_s`, Cancelled when `cancel` is set.
    """
    start = time.monotonic()
    names = [f"{device}.{part}" for device in devices for part in ("next", "turn", "active")]
    fds: list[int] = []
    has_stopped = False
    try:
        for name in names:
            wait = _LockWait(name, start, timeout_s, cancel, on_wait)
            fds.append(fd := _lock_file(name, wait))
            if name.endswith(".turn"):
                os.close(fds.pop(-2))  # `next`: another process may be the first in line
                if (address_fd := _bind_address(fd, name, wait)) is not None:
                    fds.append(address_fd)
                os.ftruncate(fd, 0)
                owner = f"{os.getpid()} {time.time():.0f} {os.environ.get(OWNER, '')}"
                os.pwrite(fd, f"{owner}\n".encode(errors="replace"), 0)
            else:
                has_stopped |= wait.has_waited and not name.startswith("cpu.")
        if has_stopped:
            _drain(is_idle or (lambda: None), cancel or threading.Event())
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    return DeviceLock(tuple(fds))


def _drain(is_idle: Callable[[], bool | None], cancel: threading.Event) -> None:
    """Wait until cards have ended what stopped processes had launched. Raises Cancelled."""
    deadline = time.monotonic() + DRAIN_S
    pause_s = SETTLING_S
    while not cancel.wait(pause_s):
        if is_idle() is not False or time.monotonic() > deadline:
            return
        pause_s = POLL_S
    raise Cancelled("stopped while waiting for a card's kernels to end")


def holder(device: str) -> int | None:
    """Return the pid that holds a device's lock: 0 if unknown, None if the lock is free."""
    fd, _ = open_file(f"{device}.turn")
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(fd)[0]
    finally:
        os.close(fd)
    return 0 if _is_bound(f"{device}.turn") else None


def is_current(fd: int, path: Path) -> bool:
    """Return whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat(follow_symlinks=False))
    except OSError:
        return False


@dataclass
class _LockWait:
    """Polls for a lock that another process holds, until a timeout or a cancellation."""

    name: str
    start: float
    timeout_s: float | None
    cancel: threading.Event | None
    on_wait: Callable[[str], None] | None

    def __post_init__(self) -> None:
        self._pause = self.cancel or threading.Event()
        self.has_waited = False

    def pause(self, fd: int) -> None:
        """Wait a moment for the process that holds the file. Raises EnvironmentFault, Cancelled."""
        stem, self.has_waited = Path(self.name).stem, True
        waited = time.monotonic() - self.start
        if self.on_wait is not None and waited > 0.5:
            self.on_wait(_describe_holder(stem) if self.name.endswith(".next")
                         else _describe_wait(stem, fd))
            self.on_wait = None
        if self.timeout_s is not None and waited > self.timeout_s:
            raise EnvironmentFault(f"still busy after {self.timeout_s:g} s", where=stem,
                                   fix="another process of kopt uses it: wait until that ends")
        if self._pause.wait(POLL_S) and self.cancel is not None:
            raise Cancelled("stopped while waiting", where=stem)


def _lock_file(name: str, wait: _LockWait) -> int:
    """Lock a file; retry if it is no longer at its path once it is locked."""
    while True:
        fd, path = open_file(name)
        try:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                wait.pause(fd)
        except BaseException:
            os.close(fd)
            raise
        if is_current(fd, path):
            return fd
        os.close(fd)


def _bind_address(fd: int, name: str, wait: _LockWait) -> int | None:
    """Bind a lock's address, which stays bound if its file is removed; None if that is refused."""
    while True:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
                bound.bind(_address(name))
                return bound.detach()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return None
        wait.pause(fd)


def _is_bound(name: str) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            probe.connect(_address(name))
    except OSError:
        return False
    return True


def _address(name: str) -> bytes:
    path = os.path.realpath(lock_directory() / name)
    return b"\0kopt-" + hashlib.sha256(os.fsencode(path)).hexdigest()[:40].encode()


def _describe_holder(device: str) -> str:
    """Return in words that a device is waited for, and who holds its turn."""
    with os.fdopen(open_file(f"{device}.turn")[0]) as file:
        return _describe_wait(device, file.fileno())


def _describe_wait(device: str, fd: int) -> str:
    pid, since, campaign = _owner(fd)
    at = f" since {time.strftime('%H:%M:%S', since)}" if since else ""
    if campaign and campaign == plain(os.environ.get(OWNER, "")):
        campaign = "this campaign"
    holder = campaign or (f"process {pid}" if pid else "another kopt")
    shown = _UUID.sub(r"\1", device.removeprefix("gpu-"))  # the UUID's first part, as in tools
    return f"waiting for {shown}: held by {holder}{at}"


def _owner(fd: int) -> tuple[int, time.struct_time | None, str]:
    """Return the pid (0 if unknown), start time and campaign that a lock file names."""
    pid, since, campaign = (*plain(os.pread(fd, 200, 0).decode(errors="replace"))
                            .split(maxsplit=2), "", "", "")[:3]
    start = time.localtime(int(since)) if since.isdecimal() and len(since) < 12 else None
    return int(pid) if pid.isdecimal() and len(pid) < 12 else 0, start, campaign.strip()


def open_file(name: str) -> tuple[int, Path]:
    """Open or create a lock file, and renew its time so that cleaners of /tmp keep it."""
    path = lock_directory() / name
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            fd = os.open(path, flags)
        except FileNotFoundError:
            fd = os.open(path, flags | os.O_CREAT, 0o666)
            os.fchmod(fd, 0o666)
    except OSError as error:
        raise EnvironmentFault(f"cannot open the device lock: {error.strerror}", where=str(path),
                               fix="remove the file or set KOPT_LOCK_DIR") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise EnvironmentFault("the device lock is not a regular file", where=str(path),
                               fix="remove it")
    with contextlib.suppress(OSError):
        os.utime(fd)
    return fd, path
