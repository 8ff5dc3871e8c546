"""One lock per device for the whole box and all its users, and the turnstile of the CPU.

Locks are `flock`s on files in one directory, so that the kernel drops them with their holder. The
process that takes a lock hands its descriptors to the supervisors it starts: the lock stays taken
until the last of them has killed its job.

On the CPU a measurement must overlap nothing. `turn` is held exclusively by whoever measures;
processes that yield hold `active` shared while they run and stop when they see the turn taken.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentFault, Stopped

POLL_S = 0.004
TENANCY_TRIES = 50


def lock_directory() -> Path:
    """Return the box-wide directory of lock files (KOPT_LOCK_DIR moves it, for tests)."""
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
    """The lock files by which yielding processes make way for a measurement."""

    paths: tuple[str, str]


@dataclass(frozen=True)
class DeviceLock:
    """A lock that is held; `fds` go to the supervisors that work under it."""

    fds: tuple[int, ...]
    waited_s: float

    def release(self) -> None:
        for fd in reversed(self.fds):
            os.close(fd)

    def __enter__(self) -> DeviceLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def turnstile(device: str = "cpu") -> Turnstile:
    """Return the turnstile of a shared device, its files made."""
    names = (f"{device}.turn", f"{device}.active")
    paths = []
    for name in names:
        fd, path = _open(name)
        os.close(fd)
        paths.append(str(path))
    return Turnstile((paths[0], paths[1]))


def acquire(*devices: str, timeout_s: float | None = None, shared_device: bool = False,
            cancel: threading.Event | None = None,
            on_wait: Callable[[str], None] | None = None) -> DeviceLock:
    """Take the exclusive lock on a device, or on several, waiting for whoever has it.

    Who takes several names them in one order everywhere, so that no two wait for each other.
    `shared_device` also waits until every yielding process has stopped (the CPU). Raises
    EnvironmentFault after `timeout_s` or when `cancel` is set.
    """
    began = time.monotonic()
    names = [name for device in devices
             for name in (f"{device}.turn", *([f"{device}.active"] if shared_device else []))]
    fds: list[int] = []
    try:
        for name in names:
            fd, path = _open(name)
            fds.append(fd)
            _wait_for(fd, path, began, timeout_s, cancel, on_wait)
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    for fd in fds[::2] if shared_device else fds:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return DeviceLock(tuple(fds), time.monotonic() - began)


def holder(device: str) -> int | None:
    """Return the pid that holds a device's lock, 0 if it is not told, None when it is free."""
    fd, _ = _open(f"{device}.turn")
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _written_pid(fd)
    finally:
        os.close(fd)
    return None


@contextmanager
def tenancy(device: str) -> Iterator[None]:
    """Be known, until the block ends, as a kopt that works on a device by its lock.

    Raises EnvironmentFault if that cannot be, since somebody keeps everybody out.
    """
    fd, path = _open(f"{device}.tenants")
    try:
        for _ in range(TENANCY_TRIES):  # another may be asking just now
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            time.sleep(POLL_S)
        else:
            raise EnvironmentFault("somebody keeps every kopt from it", where=str(path))
        yield
    finally:
        os.close(fd)


def has_tenants(device: str) -> bool:
    """Return whether a kopt is known to work on a device, this one included."""
    fd, _ = _open(f"{device}.tenants")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _wait_for(fd: int, path: Path, began: float, timeout_s: float | None,
              cancel: threading.Event | None, on_wait: Callable[[str], None] | None) -> None:
    told = False
    pause = cancel or threading.Event()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        waited = time.monotonic() - began
        if on_wait is not None and not told and waited > 0.5:
            told = True
            on_wait(f"waiting for {path.stem}, held by process {_written_pid(fd) or '?'}")
        if timeout_s is not None and waited > timeout_s:
            raise EnvironmentFault(f"still busy after {timeout_s:g} s", where=path.stem,
                                   fix="another kopt measures there; wait for it")
        if pause.wait(POLL_S) and cancel is not None:
            raise Stopped("stopped while waiting", where=path.stem)


def _written_pid(fd: int) -> int:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def _open(name: str) -> tuple[int, Path]:
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
        raise EnvironmentFault("the device lock is no regular file", where=str(path),
                               fix="remove it")
    return fd, path
