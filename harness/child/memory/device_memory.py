"""Memory of an NVIDIA GPU that two processes map, passed on as a file descriptor.

It uses CUDA's virtual memory management (cuMemCreate, cuMemExportToShareableHandle), since a
descriptor also crosses the borders of namespaces, which the handles of cudaIpcGetMemHandle do not.
A context must be current. Standard library, and torch.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

PINNED, ON_DEVICE, BY_DESCRIPTOR, READ_WRITE = 1, 1, 1, 3
"""CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE,
CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR and CU_MEM_ACCESS_FLAGS_PROT_READWRITE."""


OUT_OF_MEMORY = 2
"""CUDA_ERROR_OUT_OF_MEMORY."""


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", _Location),
                ("windows", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


class DeviceMemory:
    """At least `nbytes` bytes of the first visible GPU at `address`; `fd` is -1 if received."""

    kind = "device"

    def __init__(self, cuda: ctypes.CDLL, handle: ctypes.c_uint64, nbytes: int) -> None:
        self._cuda, self._handle, self.fd = cuda, handle, -1
        self.nbytes = nbytes
        address = ctypes.c_uint64()
        _check(cuda.cuMemAddressReserve(
            ctypes.byref(address), ctypes.c_size_t(nbytes), ctypes.c_size_t(0),
            ctypes.c_uint64(0), ctypes.c_ulonglong(0)), "cuMemAddressReserve")
        self.address = address.value
        _check(cuda.cuMemMap(address, ctypes.c_size_t(nbytes), ctypes.c_size_t(0), handle,
                             ctypes.c_ulonglong(0)), "cuMemMap")
        access = _Access(_Location(ON_DEVICE, 0), READ_WRITE)
        _check(cuda.cuMemSetAccess(address, ctypes.c_size_t(nbytes), ctypes.byref(access),
                                   ctypes.c_size_t(1)), "cuMemSetAccess")

    @classmethod
    def create(cls, nbytes: int) -> DeviceMemory:
        """Allocate memory and export it.

        Raises MemoryError if the card has no room for it, OSError where the driver refuses.
        """
        cuda = ctypes.CDLL("libcuda.so.1")
        properties = _Properties(PINNED, BY_DESCRIPTOR, _Location(ON_DEVICE, 0))
        unit, handle, fd = ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_int()
        _check(cuda.cuMemGetAllocationGranularity(ctypes.byref(unit), ctypes.byref(properties), 0),
               "cuMemGetAllocationGranularity")
        rounded = -(-nbytes // unit.value) * unit.value
        _check(cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(rounded),
                                ctypes.byref(properties), ctypes.c_ulonglong(0)), "cuMemCreate")
        memory = cls(cuda, handle, rounded)
        _check(cuda.cuMemExportToShareableHandle(ctypes.byref(fd), handle, BY_DESCRIPTOR,
                                                 ctypes.c_ulonglong(0)), "export")
        memory.fd = fd.value
        return memory

    @classmethod
    def received(cls, fd: int, nbytes: int) -> DeviceMemory:
        cuda, handle = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
        _check(cuda.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(fd),
                                                   BY_DESCRIPTOR), "import")
        os.close(fd)
        return cls(cuda, handle, nbytes)

    def tensor(self) -> Any:
        """Return the bytes as a tensor of torch."""
        import torch

        device = torch.device("cuda:0")
        storage = torch._C._construct_storage_from_data_pointer(self.address, device, self.nbytes)
        return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)

    def close(self) -> None:
        """Close the descriptor, and unmap and free the memory."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.unmap()

    def __del__(self) -> None:
        self.unmap()

    def unmap(self) -> None:
        """Unmap and free the memory; no tensor on it may be used any more."""
        if self.address:
            address, size = ctypes.c_uint64(self.address), ctypes.c_size_t(self.nbytes)
            self._cuda.cuMemUnmap(address, size)
            self._cuda.cuMemAddressFree(address, size)
            self._cuda.cuMemRelease(self._handle)
            self.address = 0


def _check(result: int, what: str) -> None:
    if result == OUT_OF_MEMORY:
        raise MemoryError(f"out of memory: {what}")
    if result:
        raise OSError(f"{what} failed with CUDA's error {result}")
