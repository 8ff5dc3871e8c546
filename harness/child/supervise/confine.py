"""Confines an untrusted process in namespaces: read-only except for named folders.

Runs in a forked child of the supervisor, before the untrusted program starts. If the kernel
refuses, the caller gets the reason and decides whether to go on unconfined. Standard library only.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from . import own_network, system_calls

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8
PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG = 38, 1
LINUX_CAPABILITY_VERSION_3 = 0x20080522
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE = 442, -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NODEV = 1, 4
INNER_UID = 1000  # any id but 0: programs started under it have no capabilities
SHARED, SHARED_MEMORY = "/dev/shm", "size=1g"
NOTHING = "size=4k"
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
TERMINALS, MULTIPLEXER = "/dev/pts", "/dev/ptmx"
HOSTS = "/etc/hosts"
CARDS = ("nvidia*", "dri", "kfd", "dxg")
"""With DEVICES, all that a program may open below /dev: root could otherwise write to the disk."""
NUMBERED = re.compile(r"/dev/nvidia[0-9]+")

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = [("attr_set", ctypes.c_uint64), ("attr_clr", ctypes.c_uint64),
                ("propagation", ctypes.c_uint64), ("userns_fd", ctypes.c_uint64)]


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    encoded_kind = kind.encode() if kind else None
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), encoded_kind,
                       ctypes.c_ulong(flags), options.encode() or None), f"mount {target}")


def _set_attributes(path: str, flags: int = 0, *, add: int = 0, drop: int = 0) -> None:
    attributes = _MountAttr(attr_set=add, attr_clr=drop)
    _check(_libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), flags,
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


def enter(writable: list[str], network: bool, report: int = -1, *, cards: bool = True,
          nodes: Sequence[str] = (), hidden: Sequence[str] = (),
          binds: Sequence[Sequence[str]] = (), reach: Mapping[str, Any] | None = None) -> None:
    """Move this process into its own namespaces and fork; return in the innermost child.

    Only `writable` and a private /dev/shm are writable. Of the machine's /dev/shm, and of `hidden`
    folders, only the folders that this process works in remain; `hidden` files cannot be opened.
    `binds` are pairs (folder, path): the folder appears, writable, at the path. Other processes are
    invisible and cannot be signalled. Without `network` not even a local socket can be reached,
    except that with `reach` the owner answers at some addresses (`own_network`). Without `cards` no
    GPU can be opened; with `nodes`, only these of the numbered devices below /dev. The intermediate
    processes wait and exit as the innermost one does. Its wait status and the number of processes
    it left are written to the descriptor `report`. Raises OSError if the kernel refuses: for
    namespaces and mounts, before any fork.
    """
    parent = os.getppid()
    _map_ids()
    _die_with_parent(parent)
    if not network:
        _check(_libc.unshare(CLONE_NEWNET), "unshare network")
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    devices = _devices(DEVICES + (CARDS if cards else ()), nodes)
    for source, path in (*((path, path) for path in (*writable, *devices)), *binds):
        _mount(source, path, None, MS_BIND | MS_REC)
    _set_attributes("/", AT_RECURSIVE, add=MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV)
    for path in (*writable, *(path for _, path in binds)):
        _set_attributes(path, drop=MOUNT_ATTR_RDONLY)
    for path in devices:
        _set_attributes(path, AT_RECURSIVE, drop=MOUNT_ATTR_NODEV)
    if reach:
        if os.path.exists(HOSTS):
            _mount(reach["hosts"], HOSTS, None, MS_BIND)
            _set_attributes(HOSTS, add=MOUNT_ATTR_RDONLY)
        own_network.pass_listeners(reach["link"], reach["addresses"])
    _mount_terminals()
    needed = [*writable, *(path for _, path in binds), os.getcwd()]
    _empty(SHARED, needed, SHARED_MEMORY)
    for path in filter(os.path.exists, hidden):  # one in /dev/shm is gone already
        if os.path.isdir(path):
            _empty(path, needed, NOTHING)
            _set_attributes(path, add=MOUNT_ATTR_RDONLY)
        else:
            _mount(os.devnull, path, None, MS_BIND)
            _set_attributes(path, add=MOUNT_ATTR_NODEV)  # not even the null device can be opened
    _wait_in_parent()
    _mount_proc()
    _wait_in_parent(as_init=True, report=report)
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _drop_capabilities()
    if reach:
        system_calls.refuse_foreign_sockets()
    elif not network:
        system_calls.refuse_connections()


def _mount_terminals() -> None:
    """Mount this namespace's own pseudo-terminals: the machine's belong to its users."""
    try:
        _mount("devpts", TERMINALS, "devpts", MS_NOSUID | MS_NOEXEC,
               "newinstance,ptmxmode=0666,mode=620")
        if not os.path.islink(MULTIPLEXER):
            _mount(f"{TERMINALS}/ptmx", MULTIPLEXER, None, MS_BIND)
    except OSError:
        return  # some containers forbid it; then there are no terminals


def _empty(folder: str, needed: Sequence[str], options: str) -> None:
    """Mount an empty file system over `folder`, with only those of its folders that are `needed`.

    People set TMPDIR to /dev/shm, so a working folder may be there.
    """
    kept = {}
    folder = os.path.realpath(folder)
    for path in map(os.path.realpath, needed):
        inside = path.removeprefix(f"{folder}/").split("/")
        if path.startswith(f"{folder}/") and inside[0] not in kept:
            kept[inside[0]] = os.open(f"{folder}/{inside[0]}", os.O_PATH | os.O_DIRECTORY)
    _mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, options)
    for name, fd in kept.items():
        os.mkdir(f"{folder}/{name}")
        _mount(f"/proc/self/fd/{fd}", f"{folder}/{name}", None, MS_BIND | MS_REC)
        os.close(fd)


def _devices(names: Sequence[str], nodes: Sequence[str]) -> list[str]:
    """Return the existing devices of these names; of numbered cards only `nodes`, if one exists."""
    candidates = [path for name in names for path in glob.glob(f"/dev/{name}")
                  if not os.path.islink(path)]
    allowed = {f"/dev/{name}" for name in nodes}.intersection(candidates)
    return [path for path in candidates
            if not allowed or path in allowed or not NUMBERED.fullmatch(path)]


def _drop_capabilities() -> None:
    """Drop the capabilities that a user namespace grants its first process.

    An exec would drop them too, but programs forked by the zygote never exec.
    """
    header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def _mount_proc() -> None:
    """Mount a /proc for this namespace in which only the processes' own folders are writable.

    CUDA needs those to start: it names its threads by writing to /proc/self/task.
    """
    try:
        _mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except OSError:
        return  # some containers mask /proc; it stays as it is
    try:
        for entry in list(os.scandir("/proc")):
            if not entry.name.isdigit() and not entry.is_symlink():
                _mount(entry.path, entry.path, None, MS_BIND | MS_REC)
                _set_attributes(entry.path, AT_RECURSIVE, add=MOUNT_ATTR_RDONLY)
    except OSError:
        _set_attributes("/proc", AT_RECURSIVE, add=MOUNT_ATTR_RDONLY)


def _die_with_parent(parent: int) -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before that took effect
        os._exit(127)


def _wait_in_parent(*, as_init: bool = False, report: int = -1) -> None:
    """Fork and return in the child; the parent reaps, then exits as the child did."""
    child = os.fork()
    if child == 0:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if as_init and report >= 0:
            os.close(report)
        return
    keep = report if as_init and report >= 0 else 4096
    os.closerange(0, keep)
    os.closerange(keep + 1, 4096)
    while True:
        try:
            pid, status = os.wait()
        except InterruptedError:
            continue
        if pid == child:
            break
    if as_init and report >= 0:
        os.write(report, b"%d %d\n" % (status, _others()))
    if as_init or not os.WIFSIGNALED(status):
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
    os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(128 + os.WTERMSIG(status))


def _others() -> int:
    """Return the number of living processes in this namespace besides its first."""
    count = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                count += file.read().rsplit(b") ", 1)[1][:1] not in b"ZX"
        except (OSError, IndexError):
            continue
    return count


def main(_: int) -> None:
    """Check whether this machine can confine: exit 0, or 1 with the reason."""
    try:
        enter([], False)
    except OSError as error:
        print(error)
        sys.exit(1)
