"""Memory of the machine that two processes map: a file without a name, which cannot change size."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any

F_ADD_SEALS = 1033
SEAL_SEAL, SEAL_SHRINK, SEAL_GROW = 1, 2, 4
"""Seals fix a file's size: if its receiver shrank it, reading it would kill this process."""


GUARD_BYTES = 4096
"""Bytes between two tensors of a slot, see harness/runners/slots/slot_layout.py."""


class HostMemory:
    """A mapping of `nbytes` bytes at `address`; `fd` is its file."""

    kind = "host"

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd, self.nbytes = fd, nbytes
        self.map = _mapped(fd, nbytes)
        self.address = ctypes.addressof(self.map)

    @classmethod
    def create(cls, nbytes: int) -> HostMemory:
        fd = os.memfd_create("kopt", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, F_ADD_SEALS, SEAL_SEAL | SEAL_SHRINK | SEAL_GROW)
        return cls(fd, nbytes)

    @classmethod
    def received(cls, files: Sequence[int], nbytes: int) -> HostMemory:
        [fd] = files
        memory = cls(fd, nbytes)
        memory.close()
        return memory

    def take_files(self) -> list[int]:
        """Return the file's descriptor, which the caller closes."""
        fd, self.fd = self.fd, -1
        return [fd]

    def fence(self, pages: list[int]) -> None:
        """Make pages unreadable in this process, unless a page is larger than GUARD_BYTES."""
        libc = ctypes.CDLL(None)
        for at in pages if mmap.PAGESIZE <= GUARD_BYTES else ():
            libc.mprotect(ctypes.c_void_p(self.address + at), ctypes.c_size_t(mmap.PAGESIZE), 0)

    def tensor(self) -> Any:
        """Return the bytes as a tensor of torch."""
        import torch

        return torch.frombuffer(self.map, dtype=torch.uint8)

    def close(self) -> None:
        """Close the file; the mapping lives as long as anything refers to it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _mapped(fd: int, nbytes: int) -> Any:
    """Map a file for as long as anything refers to it; `mmap` would keep a copy of `fd` open."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.munmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]
    address = libc.mmap(None, ctypes.c_size_t(nbytes), mmap.PROT_READ | mmap.PROT_WRITE,
                        mmap.MAP_SHARED, fd, ctypes.c_long(0))
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "cannot map shared memory")
    mapped = (ctypes.c_ubyte * nbytes).from_address(address)
    weakref.finalize(mapped, libc.munmap, address, nbytes).atexit = False
    return mapped
