"""Refuses system calls by which a confined process could reach sockets of the machine.

Sockets in the file system (docker, tmux) and those of virtual machines bypass network namespaces.
io_uring can open and connect sockets too and is refused as well. On architectures not listed in
SYSCALLS nothing is refused. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct

# By machine: the number of the audit architecture, of seccomp(2), of connect(2) and of socket(2).
SYSCALLS = {"x86_64": (0xC000003E, 317, 42, 41), "aarch64": (0xC00000B7, 277, 203, 198)}
SYS_IO_URING_SETUP, X32 = 425, 0x40000000
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW = 1, 4
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO = 0x7FFF0000, 0x00050000
BPF_LOAD, BPF_EQUAL, BPF_AT_LEAST, BPF_AND, BPF_RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
NUMBER, ARCHITECTURE, FIRST, SECOND = 0, 4, 16, 24
"""The offsets at which a filter reads the call, the architecture and the first two arguments."""
SOCKET_KIND = 0xF

_Step = tuple[int, str, str, int]
"""An instruction's code, the jump target if its comparison holds, the one if not, and its value.
The target "" is the next step."""

_libc = ctypes.CDLL(None, use_errno=True)


def refuse_connections() -> None:
    """Make every connect(2) fail. Raises OSError if the kernel refuses the filter."""
    if numbers := SYSCALLS.get(os.uname().machine):
        _install(numbers, [(BPF_EQUAL, "refuse", "allow", numbers[2])], errno.ECONNREFUSED)


def refuse_foreign_sockets() -> None:
    """Allow only network sockets and local datagrams. Raises OSError if the kernel refuses.

    Socket pairs stay possible, by socketpair(2). Local datagrams can reach sockets in the file
    system, but a program that accepts datagrams trusts no sender.
    """
    if numbers := SYSCALLS.get(os.uname().machine):
        _install(numbers, [
            (BPF_EQUAL, "", "allow", numbers[3]),
            (BPF_LOAD, "", "", FIRST),
            *((BPF_EQUAL, "allow", "", family) for family in
              (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)),
            (BPF_EQUAL, "", "refuse", socket.AF_UNIX),
            (BPF_LOAD, "", "", SECOND),
            (BPF_AND, "", "", SOCKET_KIND),
            (BPF_EQUAL, "allow", "refuse", socket.SOCK_DGRAM)], errno.EACCES)


def _install(numbers: tuple[int, int, int, int], steps: list[_Step], refused: int) -> None:
    """Install a filter of these steps: "refuse" fails with the error number `refused`.

    Raises OSError if the kernel refuses the filter.
    """
    architecture, seccomp, _, _ = numbers
    steps = [
        (BPF_LOAD, "", "", ARCHITECTURE),
        (BPF_EQUAL, "", "missing", architecture),
        (BPF_LOAD, "", "", NUMBER),
        (BPF_AT_LEAST, "missing", "", X32),
        (BPF_EQUAL, "missing", "", SYS_IO_URING_SETUP),
        *steps]
    ends = {"allow": SECCOMP_RET_ALLOW, "missing": SECCOMP_RET_ERRNO | errno.ENOSYS,
            "refuse": SECCOMP_RET_ERRNO | refused}
    positions = {name: len(steps) + number for number, name in enumerate(ends)}
    code = b"".join(struct.pack("HBBI", code, *(
        positions.get(end, at + 1) - at - 1 for end in (yes, no)), int(value))
        for at, (code, yes, no, value) in enumerate(steps))
    code += b"".join(struct.pack("HBBI", BPF_RETURN, 0, 0, value) for value in ends.values())
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    if _libc.syscall(seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                     program) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
