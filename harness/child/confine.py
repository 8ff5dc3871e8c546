"""Namespaces for an untrusted process: a read-only box, writable only where it was told.

Runs in a forked child of the supervisor, before the untrusted program starts. Standard library
only. Where the kernel refuses, the caller is told why and goes on without.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE, MS_NOSUID, MS_NODEV = 0x1000, 0x4000, 0x40000, 0x2, 0x4
PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG = 38, 1
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
INNER_UID = 1000  # any id but 0: programs started under it hold no capabilities

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = [("attr_set", ctypes.c_uint64), ("attr_clr", ctypes.c_uint64),
                ("propagation", ctypes.c_uint64), ("userns_fd", ctypes.c_uint64)]


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    encoded_kind = kind.encode() if kind else None
    _check(_libc.mount(source.encode(), target.encode(), encoded_kind, ctypes.c_ulong(flags), None),
           f"mount {target}")


def _set_attributes(path: str, flags: int, *, read_only: bool) -> None:
    attributes = _MountAttr(attr_set=MOUNT_ATTR_RDONLY if read_only else 0,
                            attr_clr=0 if read_only else MOUNT_ATTR_RDONLY)
    _check(_libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, path.encode(), flags,
                         ctypes.byref(attributes), ctypes.sizeof(attributes)),
           f"mount_setattr {path}")


def _map_ids() -> None:
    uid, gid = os.geteuid(), os.getegid()
    flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC
    _check(_libc.unshare(flags), "unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{INNER_UID} {uid} 1"),
                       ("gid_map", f"{INNER_UID} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def enter(writable: list[str], network: bool) -> None:
    """Move this process into namespaces of its own and fork; returns in the innermost child.

    Everything is read-only but `writable` and a private /dev/shm; other processes are invisible
    and cannot be signalled. The processes in between wait and end as the inner one ends. Raises
    OSError before anything was forked when the kernel refuses.
    """
    _map_ids()
    if not network:
        _check(_libc.unshare(CLONE_NEWNET), "unshare network")
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    for path in writable:
        _mount(path, path, None, MS_BIND | MS_REC)
    _set_attributes("/", AT_RECURSIVE, read_only=True)
    for path in writable:
        _set_attributes(path, 0, read_only=False)
    _mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV)
    _wait_in_parent()
    with contextlib.suppress(OSError):  # a masked /proc (some containers) stays as it is
        _mount("proc", "/proc", "proc", 0)
    _wait_in_parent(as_init=True)
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _wait_in_parent(*, as_init: bool = False) -> None:
    """Fork; the parent stays behind to reap and passes the child's end on as its own."""
    child = os.fork()
    if child == 0:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        return
    for number in (0, 1, 2):
        os.close(number)
    os.closerange(3, 4096)
    while True:
        try:
            pid, status = os.wait()
        except InterruptedError:
            continue
        if pid == child:
            break
    if as_init or not os.WIFSIGNALED(status):
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(128 + os.WTERMSIG(status))


def main() -> int:
    """Tell whether this machine can confine: exit 0, or 1 with the reason."""
    try:
        enter([], False)
    except OSError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
