"""What a kernel leaves in its process besides memory: threads, child processes, executable code."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterator
from os import environ, getcwd, getpid, listdir, path, sysconf
from time import monotonic_ns, sleep

SAMPLE_S = 0.02
PATIENCE_NS = 300_000_000  # an OpenMP pool may spin for 0.2 s before it sleeps
LONGEST_NS = 5_000_000_000
BUSY_NS = 1_000_000
TICK_NS = 1_000_000_000 // sysconf("SC_CLK_TCK")
PAGE = sysconf("SC_PAGE_SIZE")
SYSTEM = ("/usr/", "/lib/", "/lib64/", "/lib32/", "/opt/", "/nix/store/", "/gnu/store/")
PACKAGES = ("site-packages", "dist-packages")
"""Names of folders of installed packages; those of another environment are in `sys.path` alone."""
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \S+ *(.*)")
# Top bytes of pagemap entries, except those of pages that are present and not the file's own.
_UNCHANGED = bytes(b for b in range(256) if b & 0xA0 != 0x80)


def tasks() -> dict[int, int]:
    """Return for every thread but the first how long it ran, in ns."""
    return {int(name): spent for name in _listed("/proc/self/task") if int(name) != getpid()
            and (spent := _spent(f"/proc/self/task/{name}")) is not None}


def children() -> dict[int, int]:
    """Return for every child process how long its threads ran, in ns."""
    cpu_time = {}
    for task in _listed("/proc/self/task"):
        for child in _read(f"/proc/self/task/{task}/children").split():
            if _compiles(child):
                continue
            cpu_time[int(child)] = sum(_spent(f"/proc/{child}/task/{thread}") or 0
                                       for thread in _listed(f"/proc/{child}/task"))
    return cpu_time


def of_python(file: str) -> bool:
    """Return whether a file belongs to the interpreter or to what is installed beside it.

    Links are followed, such as those to a virtual environment in a linked home.
    """
    return path.realpath(file).startswith(
        (path.realpath(sys.prefix) + "/", path.realpath(f"{sys.base_prefix}/lib")))


def _compiles(child: str) -> bool:
    """Return whether a process belongs to torch.compile's pool, which imports torch for seconds."""
    words = _read(f"/proc/{child}/cmdline").split("\0")
    return len(words) > 1 and words[1].endswith("/torch/_inductor/compile_worker/__main__.py") \
        and of_python(words[1])


def running(tasks_before: set[int]) -> list[str]:
    """Return findings about threads and processes that still use the CPU after the call.

    What counts is the time that they run: on a busy machine they may wait long for a core.
    """
    began_ns, thread_ns = monotonic_ns(), {} if _spins() else tasks()
    first = {task: ran for task, ran in thread_ns.items() if task not in tasks_before} | children()
    last, busy = first, set(first)
    late: set[int] = set()
    while busy > late and monotonic_ns() - began_ns < LONGEST_NS:
        sleep(SAMPLE_S)
        now = tasks() | children()
        busy = {task for task in busy & now.keys()
                if now[task] - last[task] >= BUSY_NS or _is_runnable(task)}
        late = {task for task in busy if now[task] - first[task] > PATIENCE_NS}
        last = now
    threads = len(late & thread_ns.keys())
    return [f"{count} {what} kept working after the call" for count, what in (
        (threads, "thread(s)"), (len(late) - threads, "child process(es)")) if count]


def _is_runnable(task: int) -> bool:
    """Return whether a thread, or the first one of a process, runs or waits for a core."""
    return _read(f"/proc/{task}/stat").rpartition(") ")[2][:1] == "R"


def _spins() -> bool:
    """Return whether the task sets environment variables by which OpenMP threads never sleep."""
    return environ.get("OMP_WAIT_POLICY", "").lower() == "active" \
        or environ.get("KMP_BLOCKTIME", "").lower() == "infinite"


def _spent(folder: str) -> int | None:
    words = _read(f"{folder}/schedstat").split()
    return int(words[0]) if len(words) > 1 else _ticks(folder)


def _ticks(folder: str) -> int | None:
    words = _read(f"{folder}/stat").rpartition(") ")[2].split()
    return (int(words[11]) + int(words[12])) * TICK_NS if len(words) > 12 else None


class Code:
    """Compares the executable mappings of this process with those before the kernel was loaded.

    `root` is the candidate's tree: of its files only the `artifact` may be mapped as code.
    """

    def __init__(self, artifact: str, root: str, *, native: bool) -> None:
        self._native = native
        self._artifact = path.realpath(artifact)
        self._denied = tuple(path.realpath(folder) + "/" for folder in (root, getcwd()))
        interpreter = {sys.prefix, sys.base_prefix, sys.exec_prefix,
                       *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))}
        self._interpreter = _folders(interpreter)
        before = _executable()
        files = {mapping.name for mapping in before if mapping.name.startswith("/")}
        self._known = {mapping.name for mapping in _maps() if mapping.name.startswith("/")}
        beside = {path.dirname(name) for name in files}
        packages = {name for name in sys.path if path.basename(name) in PACKAGES}
        self._system = SYSTEM + _folders(
            beside | packages | set(environ.get("LD_LIBRARY_PATH", "").split(":")))
        self._anonymous = sum(mapping.size for mapping in before if not mapping.name)
        self._changed = {mapping.name for mapping in before if mapping.changed()}

    def changed(self) -> list[str]:
        """Return findings about machine code, mapped before the kernel, that was overwritten."""
        names = {mapping.name for mapping in _executable()
                 if (mapping.name in self._known or mapping.name == "[vdso]")
                 and mapping.name not in self._changed and (mapping.writable or mapping.changed())}
        return [f"the machine code of {path.basename(name)} was changed" for name in sorted(names)]

    def added(self) -> list[str]:
        """Return findings about executable code that is neither the kernel's nor the system's."""
        names = {mapping.name for mapping in _executable() if mapping.name.startswith("/")}
        findings = [f"runs code of {path.basename(name)}, which is neither the kernel's nor the "
                    "system's" for name in sorted(names - self._known) if not self._allowed(name)]
        anonymous = sum(mapping.size for mapping in _executable() if not mapping.name)
        if self._native and anonymous > self._anonymous:
            findings.append("made memory executable that belongs to no file")
        return findings

    def _allowed(self, name: str) -> bool:
        if name == self._artifact or name.startswith(self._interpreter):
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
        """Return whether any page differs from the file's own."""
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
        if match := _MAPPING.match(line):
            begin, end, mode, name = match.groups()
            yield _Mapping(int(begin, 16), int(end, 16), mode, name)


def _executable() -> list[_Mapping]:
    return [mapping for mapping in _maps() if mapping.runs and mapping.name != "[vsyscall]"]


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
