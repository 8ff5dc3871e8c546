"""Memory of an NVIDIA GPU that two processes map, passed on as a file descriptor.

It uses CUDA's virtual memory management (cuMemCreate, cuMemExportToShareableHandle), since a
descriptor also crosses the borders of namespaces, which the handles of cudaIpcGetMemHandle do not.
A context must be current. Standard library, and torch.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

PINNED, ON_DEVICE, BY_DESCRIPTOR, READ_WRITE = 1, 1, 1, 3
"""CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE,
CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR and CU_MEM_ACCESS_FLAGS_PROT_READWRITE."""

PART_BYTES, MOST_PARTS = 32 << 20, 16
"""Memory for several processes has at most MOST_PARTS parts each, of PART_BYTES or more."""

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
    """At least `nbytes` bytes of the first visible GPU at `address`, in one or more equal parts.

    `files` are the descriptors of the parts; none if they were received, or given away.
    """

    kind = "device"

    def __init__(self, handles: Sequence[ctypes.c_uint64], part_bytes: int) -> None:
        self._cuda, self._handles = ctypes.CDLL("libcuda.so.1"), handles
        self._part_bytes, self.nbytes = part_bytes, part_bytes * len(handles)
        self.files: list[int] = []
        address = ctypes.c_uint64()
        _check(self._cuda.cuMemAddressReserve(
            ctypes.byref(address), ctypes.c_size_t(self.nbytes), ctypes.c_size_t(0),
            ctypes.c_uint64(0), ctypes.c_ulonglong(0)), "cuMemAddressReserve")
        self.address = address.value
        for place, handle in zip(self._places(), handles, strict=True):
            _check(self._cuda.cuMemMap(place, ctypes.c_size_t(part_bytes), ctypes.c_size_t(0),
                                       handle, ctypes.c_ulonglong(0)), "cuMemMap")
        access = _Access(_Location(ON_DEVICE, 0), READ_WRITE)
        _check(self._cuda.cuMemSetAccess(address, ctypes.c_size_t(self.nbytes),
                                         ctypes.byref(access), ctypes.c_size_t(1)),
               "cuMemSetAccess")

    @classmethod
    def create(cls, nbytes: int, count: int) -> list[DeviceMemory]:
        """Allocate and export memory for each of `count` processes.

        Their parts are allocated alternately: on an H100 a matmul is 1 to 2 % slower in one of two
        large allocations than in the other. Raises MemoryError if the card has no room for it,
        OSError if the driver refuses.
        """
        cuda = ctypes.CDLL("libcuda.so.1")
        properties, unit = _Properties(PINNED, BY_DESCRIPTOR, _Location(ON_DEVICE, 0)), \
            ctypes.c_size_t()
        _check(cuda.cuMemGetAllocationGranularity(ctypes.byref(unit), ctypes.byref(properties), 0),
               "cuMemGetAllocationGranularity")
        parts = max(1, min(MOST_PARTS, nbytes // PART_BYTES)) if count > 1 else 1
        part_bytes = -(-nbytes // (parts * unit.value)) * unit.value
        handles: list[list[ctypes.c_uint64]] = [[] for _ in range(count)]
        try:
            for part in range(parts):
                for process_handles in handles if part % 2 == 0 else handles[::-1]:
                    handle = ctypes.c_uint64()
                    _check(cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(part_bytes),
                                            ctypes.byref(properties), ctypes.c_ulonglong(0)),
                           "cuMemCreate")
                    process_handles.append(handle)
        except (MemoryError, OSError):
            for process_handles in handles:
                for handle in process_handles:
                    cuda.cuMemRelease(handle)
            raise
        memories = [cls(process_handles, part_bytes) for process_handles in handles]
        for memory in memories:
            memory._export()
        return memories

    def _export(self) -> None:
        fd = ctypes.c_int()
        for handle in self._handles:
            _check(self._cuda.cuMemExportToShareableHandle(
                ctypes.byref(fd), handle, BY_DESCRIPTOR, ctypes.c_ulonglong(0)), "export")
            self.files.append(fd.value)

    @classmethod
    def received(cls, files: Sequence[int], nbytes: int) -> DeviceMemory:
        """Map memory that another process exported."""
        cuda, handles = ctypes.CDLL("libcuda.so.1"), []
        for fd in files:
            handles.append(handle := ctypes.c_uint64())
            _check(cuda.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(fd),
                                                       BY_DESCRIPTOR), "import")
            os.close(fd)
        return cls(handles, nbytes // len(files))

    def take_files(self) -> list[int]:
        """Return the descriptors, which the caller closes."""
        files, self.files = self.files, []
        return files

    def _places(self) -> list[ctypes.c_uint64]:
        """Return the address of each part."""
        return [ctypes.c_uint64(self.address + part * self._part_bytes)
                for part in range(len(self._handles))]

    def tensor(self) -> Any:
        """Return the bytes as a tensor of torch."""
        import torch

        device = torch.device("cuda:0")
        storage = torch._C._construct_storage_from_data_pointer(self.address, device, self.nbytes)
        return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)

    def close(self) -> None:
        """Close the descriptors, and unmap and free the memory."""
        for fd in self.take_files():
            os.close(fd)
        self.unmap()

    def __del__(self) -> None:
        self.unmap()

    def unmap(self) -> None:
        """Unmap and free the memory; no tensor on it may be used any more."""
        if self.address:
            for place, handle in zip(self._places(), self._handles, strict=True):
                self._cuda.cuMemUnmap(place, ctypes.c_size_t(self._part_bytes))
                self._cuda.cuMemRelease(handle)
            self._cuda.cuMemAddressFree(ctypes.c_uint64(self.address), ctypes.c_size_t(self.nbytes))
            self.address = 0


def _check(result: int, what: str) -> None:
    if result == OUT_OF_MEMORY:
        raise MemoryError(f"out of memory: {what}")
    if result:
        raise OSError(f"{what} failed with CUDA's error {result}")
