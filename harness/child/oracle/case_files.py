"""One set of inputs, in the oracle's memory and in files, and the files that a runner returns."""

from __future__ import annotations

import math
import os
import stat
from typing import Any


class CaseFiles:
    """One set of inputs and the expected outputs; the files are copies of the bytes in memory."""

    def __init__(self, tensors: list[dict[str, Any]]) -> None:
        self.tensors = tensors
        self.data: dict[str, bytes] = {}
        self.expected: list[Any] = []
        self.dtypes: list[str] = []

    def put(self, tensor: dict[str, Any], data: bytes) -> None:
        with open(tensor["path"], "wb") as file:
            file.write(data)
        self.data[tensor["name"]] = data

    def move(self, tensor: dict[str, Any], to: list[int], source: list[int]) -> None:
        """Copy element `source[i]` to `to[i]` for all i at once."""
        data, count = self.data[tensor["name"]], math.prod(tensor["shape"])
        if not all(0 <= at < count for at in (*to, *source)):
            raise IndexError(f"moves an element outside of {count}")
        width = len(data) // count
        changed = bytearray(data)
        for there, here in zip(to, source, strict=True):
            changed[there * width:(there + 1) * width] = data[here * width:(here + 1) * width]
        self.put(tensor, bytes(changed))


def take(path: str, nbytes: int) -> bytes:
    """Read and remove a file that a runner wrote; a kernel may have put anything there."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size != nbytes:
            raise ValueError(f"{status.st_size} bytes of output, expected {nbytes}")
        data = file.read(nbytes)
    os.remove(path)
    return data
