"""What a kernel leaves in its process beside memory: threads, children, and code mapped to run."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterator
from os import environ, getcwd, getpid, listdir, path, sysconf
from time import monotonic, sleep

SAMPLE_S = 0.02
PATIENCE_S = 0.3  # a pool of OpenMP may spin for 0.2 s before it sleeps
BUSY_NS = 1_000_000
TICK_NS = 1_000_000_000 // sysconf("SC_CLK_TCK")
PAGE = sysconf("SC_PAGE_SIZE")
SYSTEM = ("/usr/", "/lib/", "/lib64/", "/lib32/", "/opt/", "/nix/store/", "/gnu/store/")
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \S+ *(.*)")
# In the top byte of a pagemap entry: the page is there, and is not the file's own.
_UNCHANGED = bytes(b for b in range(256) if b & 0xA0 != 0x80)


def tasks() -> dict[int, int]:
    """Return how long every thread but the first ran or waited to run, in ns."""
    return {int(name): spent for name in _listed("/proc/self/task") if int(name) != getpid()
            and (spent := _spent(f"/proc/self/task/{name}")) is not None}


def children() -> dict[int, int]:
    """Return how long the threads of every child process ran or waited to run, in ns."""
    found = {}
    for task in _listed("/proc/self/task"):
        for child in _read(f"/proc/self/task/{task}/children").split():
            if _compiles(child):
                continue
            found[int(child)] = sum(_spent(f"/proc/{child}/task/{one}") or 0
                                    for one in _listed(f"/proc/{child}/task"))
    return found


def _compiles(child: str) -> bool:
    """Tell whether a process is of torch.compile's pool, which imports torch for some seconds."""
    words = _read(f"/proc/{child}/cmdline").split("\0")
    return len(words) > 1 and words[1].endswith("/torch/_inductor/compile_worker/__main__.py") \
        and path.realpath(words[1]).startswith((f"{sys.prefix}/", f"{sys.base_prefix}/lib"))


def running(tasks_before: set[int]) -> list[str]:
    """Say what of the kernel uses the processor although no call is running."""
    deadline = monotonic() + PATIENCE_S
    threads, processes = tasks(), children()
    busy: set[int] = set(threads) - tasks_before
    forked = set(processes)
    while busy or forked:
        sleep(SAMPLE_S)
        now, then = tasks(), children()
        busy = {t for t in busy if now.get(t, 0) - threads.get(t, 0) >= BUSY_NS}
        forked = {t for t in forked if then.get(t, 0) - processes.get(t, 0) >= BUSY_NS}
        threads, processes = now, then
        if monotonic() > deadline:
            break
    told = []
    if busy and not _spins():
        told.append(f"{len(busy)} thread(s) went on working after the call")
    if forked:
        told.append(f"{len(forked)} child process(es) went on working after the call")
    return told


def _spins() -> bool:
    """Tell whether the task's own environment asks for threads that never sleep."""
    return environ.get("OMP_WAIT_POLICY", "").lower() == "active" \
        or environ.get("KMP_BLOCKTIME", "").lower() == "infinite"


def _spent(folder: str) -> int | None:
    words = _read(f"{folder}/schedstat").split()
    return int(words[0]) + int(words[1]) if len(words) > 1 else _ticks(folder)


def _ticks(folder: str) -> int | None:
    words = _read(f"{folder}/stat").rpartition(") ")[2].split()
    return (int(words[11]) + int(words[12])) * TICK_NS if len(words) > 12 else None


class Code:
    """The executable mappings of this process before a kernel is opened, and what came later.

    `root` is the candidate's tree, from which nothing may be mapped but the `artifact`.
    """

    def __init__(self, artifact: str, root: str, *, native: bool) -> None:
        self._native = native
        self._own = path.realpath(artifact)
        self._denied = tuple(path.realpath(one) + "/" for one in (root, getcwd()))
        interpreter = {sys.prefix, sys.base_prefix, sys.exec_prefix,
                       *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))}
        self._interpreter = _folders(interpreter)
        before = _executable()
        files = {one.name for one in before if one.name.startswith("/")}
        self._known = files | set(_mapped())
        beside = {path.dirname(name) for name in files}
        self._system = SYSTEM + _folders(
            beside | set(environ.get("LD_LIBRARY_PATH", "").split(":")))
        self._anonymous = sum(one.size for one in before if not one.name)
        self._changed = {one.name for one in before if one.changed()}

    def changed(self) -> list[str]:
        """Say in which files mapped before the kernel the machine code was written to."""
        names = {one.name for one in _executable()
                 if (one.name in self._known or one.name == "[vdso]")
                 and one.name not in self._changed and (one.writable or one.changed())}
        return [f"the machine code of {path.basename(name)} was changed" for name in sorted(names)]

    def added(self) -> list[str]:
        """Say what runs here that is neither the kernel nor the system's."""
        names = {one.name for one in _executable() if one.name.startswith("/")}
        told = [f"runs code of {path.basename(name)}, which is neither the kernel's nor the "
                "system's" for name in sorted(names - self._known) if not self._allowed(name)]
        anonymous = sum(one.size for one in _executable() if not one.name)
        if self._native and anonymous > self._anonymous:
            told.append("made memory executable that belongs to no file")
        return told

    def _allowed(self, name: str) -> bool:
        if name == self._own or name.startswith(self._interpreter):
            return True
        if not self._native and any(part in name for part in _caches()):
            return True  # launchers that Triton or torch.compile built
        return name.startswith(self._system) and not name.startswith(self._denied)


class _Mapping:
    def __init__(self, begin: int, end: int, mode: str, name: str) -> None:
        self.begin, self.size, self.name = begin, end - begin, name
        self.writable = "w" in mode
        self.runs = "x" in mode

    def changed(self) -> bool:
        """Tell whether any page is not the file's own any more."""
        try:
            with open("/proc/self/pagemap", "rb", buffering=0) as file:
                file.seek(self.begin // PAGE * 8)
                entries = file.read(self.size // PAGE * 8)
        except OSError:
            return False
        top = entries[7::8] if sys.byteorder == "little" else entries[::8]
        return bool(top.translate(None, _UNCHANGED))


def _maps() -> Iterator[_Mapping]:
    for line in _read("/proc/self/maps").splitlines():
        if found := _MAPPING.match(line):
            begin, end, mode, name = found.groups()
            yield _Mapping(int(begin, 16), int(end, 16), mode, name)


def _executable() -> list[_Mapping]:
    return [one for one in _maps() if one.runs and one.name != "[vsyscall]"]


def _mapped() -> list[str]:
    return [one.name for one in _maps() if one.name.startswith("/")]


def _caches() -> tuple[str, ...]:
    return tuple(folder for folder in (environ.get("TRITON_CACHE_DIR", ""), "/torchinductor_",
                                       environ.get("TORCHINDUCTOR_CACHE_DIR", "")) if folder)


def _folders(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted({path.realpath(name) + "/" for name in names if len(name) > 1}))


def _read(name: str) -> str:
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _listed(name: str) -> list[str]:
    try:
        return listdir(name)
    except OSError:
        return []
