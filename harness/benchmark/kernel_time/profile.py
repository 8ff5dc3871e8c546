"""The GPU kernels of one benchmark run: launches and times by name, whichever tool measured them.

The files of a tool are read within limits: the candidate could forge them, as it can its CSV.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from harness.benchmark.runs.workdir import WorkingCopy
from harness.errors import Cancelled, KoptError
from harness.formats import file_copy
from harness.formats.text import one_line
from harness.verdict import Evidence, KernelShare

T = TypeVar("T")
MOST_FILES, MOST_NAMES, NAME_LENGTH = 512, 4096, 300
"""Limits of a run's files and different kernels, beyond which it is not measured; longer names are
cut."""
MOST_KERNELS, SHOWN_KERNELS = 8, 3
"""Most kernels that a verdict lists, and that its evidence names."""


class KernelTimeUnavailable(KoptError):
    """The kernels of a run could not be measured; the text says why."""

    exit_code = 1


@dataclass(frozen=True, kw_only=True)
class KernelLaunches:
    """All launches of the kernels of one name; `blocks` counts the thread blocks of all of them."""

    launches: int
    total_ns: int
    least_ns: int
    blocks: int

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.launches

    def __add__(self, other: KernelLaunches) -> KernelLaunches:
        return KernelLaunches(launches=self.launches + other.launches,
                              total_ns=self.total_ns + other.total_ns,
                              least_ns=min(self.least_ns, other.least_ns),
                              blocks=self.blocks + other.blocks)


KernelProfile = Mapping[str, KernelLaunches]


def kernel_name(text: str) -> str:
    """Return a kernel's name as one line of limited length."""
    return one_line(text, NAME_LENGTH)


def merged(profiles: Iterable[KernelProfile],
           cancel: threading.Event | None = None) -> KernelProfile:
    """Add up the kernels of all processes of a run. Raises KernelTimeUnavailable, Cancelled."""
    kernels: dict[str, KernelLaunches] = {}
    for profile in profiles:
        if cancel is not None and cancel.is_set():
            raise Cancelled("cancelled while kernel time was read")
        for name, kernel in profile.items():
            kernels[name] = kernels[name] + kernel if name in kernels else kernel
            if len(kernels) > MOST_NAMES:
                raise KernelTimeUnavailable("it has too many different kernels")
    if not kernels:
        raise KernelTimeUnavailable("no kernel was launched")
    return kernels


@dataclass(frozen=True, kw_only=True)
class ToolFiles:
    """The files that a tool leaves in a folder, one per process, and their limits in bytes."""

    tool: str
    parse: Callable[[str], KernelProfile]
    """Reads one file. Raises KernelTimeUnavailable."""
    result: re.Pattern[str]
    other: re.Pattern[str] | None = None
    """Files that are ignored."""
    none: str
    """What a folder without files means."""
    file_bytes: int
    all_bytes: int

    def profile(self, folder: Path, cancel: threading.Event | None = None) -> KernelProfile:
        """Return the kernels of all processes. Raises KernelTimeUnavailable, Cancelled."""
        return merged(map(self.parse, self._texts(folder)), cancel)

    def _texts(self, folder: Path) -> Iterator[str]:
        """Yield the texts of the results; no link is followed. Raises KernelTimeUnavailable."""
        try:
            folder_fd = os.open(
                folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise KernelTimeUnavailable(
                f"{self.tool}'s files are gone: {error.strerror}") from None
        try:
            left = self.all_bytes
            for name in self._names(folder_fd):
                with file_copy.open_plain(name, dir_fd=folder_fd) as file:
                    data = file.read(min(self.file_bytes, left) + 1)
                left -= len(data)
                if len(data) > self.file_bytes or left < 0:
                    raise KernelTimeUnavailable(f"{self.tool}'s output is too large")
                yield data.decode(errors="replace")
        except OSError as error:
            raise KernelTimeUnavailable(
                f"{self.tool}'s files cannot be read: {error.strerror}") from None
        finally:
            os.close(folder_fd)

    def _names(self, folder_fd: int) -> list[str]:
        with os.scandir(folder_fd) as entries:
            names = [entry.name for entry, _ in zip(entries, range(MOST_FILES + 1), strict=False)]
        if len(names) > MOST_FILES:
            raise KernelTimeUnavailable("too many processes")
        results = [name for name in names if self.result.fullmatch(name)]
        if not all(name in results or (self.other and self.other.fullmatch(name))
                   for name in names):
            raise KernelTimeUnavailable(f"{self.tool}'s folder holds other files")
        if not results:
            raise KernelTimeUnavailable(self.none)
        return sorted(results)


class Profiler(ABC):
    """A tool that measures the kernels of a command; `missing` says what it lacks here."""

    fix: ClassVar[str]
    files: ClassVar[ToolFiles]

    @property
    def tool(self) -> str:
        return self.files.tool

    @property
    @abstractmethod
    def missing(self) -> str: ...

    @abstractmethod
    def changes(self, copy: WorkingCopy, folder: Path) -> dict[str, Any]:
        """Return the changes to a command's environment that make the tool write to a folder."""

    def observe(self, copy: WorkingCopy, work: Callable[[], T]) -> tuple[T, KernelProfile]:
        """Return the work's result and its kernels. Raises KernelTimeUnavailable, Cancelled."""
        folder = Path(tempfile.mkdtemp(prefix="kernel-time-", dir=copy.home))
        environment = copy.environment
        try:
            copy.environment = replace(environment, **self.changes(copy, folder))
            result = work()
            return result, self.files.profile(folder, environment.cancel)
        finally:
            copy.environment = environment
            file_copy.remove(folder)


def kernel_shares(profile: KernelProfile) -> tuple[KernelShare, ...]:
    """Return the kernels that take the most of a run's GPU time, the longest first."""
    whole_ns = sum(kernel.total_ns for kernel in profile.values())
    ranked = sorted(profile.items(), key=lambda item: (-item[1].total_ns, item[0]))
    return tuple(KernelShare(name=name, launches=kernel.launches, mean_us=kernel.mean_ns / 1e3,
                             share=kernel.total_ns / whole_ns)
                 for name, kernel in ranked[:MOST_KERNELS])


def trace_evidence(kernels: Sequence[KernelShare], tool: str) -> Evidence:
    """Return the kernels with the largest shares in words."""
    parts = [f"{kernel.name or 'unnamed kernels'} {kernel.share:.0%} ({kernel.launches} launches "
             f"of {kernel.mean_us:.4g} us)" for kernel in kernels[:SHOWN_KERNELS]]
    return Evidence(kind="trace", detail=f"GPU time of a run goes to {', '.join(parts)}, by {tool}")
