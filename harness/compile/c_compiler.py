"""Build a C kernel into a shared library, in a guarded process."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import Cancelled, EnvironmentFault, KoptError
from harness.formats.text import plain
from harness.isolation import guard
from harness.isolation.confinement import Confine
from harness.isolation.device_lock import Turnstile
from harness.isolation.process_outcome import Limits
from harness.tasks.target import Target

BUILD_LIMITS = Limits(wall_s=60.0, output_bytes=1 << 20, memory_bytes=4 << 30,
                      file_bytes=256 << 20)
COMPILERS = ("cc", "gcc", "clang")
CPP = (".cpp", ".cc", ".cxx")
"""Suffixes of C++, which these compilers compile too, but without linking its library."""
ALIGNMENT = ("-falign-functions=64", "-falign-loops=64", "-falign-jumps=64")
"""Start code at cache lines, so that equal loops take equal time wherever they lie in a library.

-falign-labels is left out: it pads paths that fall through, and times spread more with it
(bench/c_alignment.py).
"""
REFERENCE_FLAGS = ("-O2", "-ffp-contract=off")
PROBE_S = 20.0
_ERROR = re.compile(r"\berror: |undefined reference|: cannot find |^kopt: ")


class BuildError(KoptError):
    """The candidate does not compile; `what` is the compiler's first error."""

    exit_code = 1


def cache_directory() -> Path:
    """Return the folder of what kopt has built and measured for this machine."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "kopt"


def compiler() -> str:
    """Return the system's C compiler. Raises EnvironmentFault when there is none."""
    for name in COMPILERS:
        if path := shutil.which(name):
            return path
    raise EnvironmentFault("no C compiler found", fix="install gcc or clang (Debian: apt install "
                           "gcc)")


@functools.cache
def alignment_flags(path: str) -> tuple[str, ...]:
    """Return the flags of ALIGNMENT that a compiler accepts without a warning; probed once."""
    return ALIGNMENT if _accepts(path, *ALIGNMENT) else \
        tuple(flag for flag in ALIGNMENT if _accepts(path, flag))


def _accepts(path: str, *flags: str) -> bool:
    try:
        process = subprocess.run(
            [path, "-Werror", *flags, "-x", "c", "-S", "-o", "/dev/null", "/dev/null"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=PROBE_S, env=guard.clean_env(), check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return process.returncode == 0


def build(target: Target, tree: Path, out: Path, *, yields: Turnstile | None = None,
          cancel: threading.Event | None = None) -> str:
    """Compile the target's source in `tree` to the library `out`, and return the library's hash.

    A runner compares the hash with that of the file which it loads.

    The compiler runs inside `tree` with a relative path, so that equal sources give equal bytes.
    Code is aligned to cache lines unless the target's own flags say otherwise. Raises BuildError
    with the first error line. The suffix of the source tells the compiler whether it is C++.
    """
    if not (tree / target.source).is_file():
        raise BuildError(f"{target.source} does not exist")
    out.parent.mkdir(parents=True, exist_ok=True)
    path = compiler()
    argv = [path, *alignment_flags(path), *target.flags, "-shared", "-fPIC", "-o", str(out),
            target.source, "-lm", *(["-lstdc++"] if target.source.endswith(CPP) else [])]
    run_compiler(argv, tree, out.parent, yields=yields, cancel=cancel,
                 name=f"build-{out.parent.name}")
    return hashlib.sha256(out.read_bytes()).hexdigest()


def build_reference(target: Target, tree: Path, out: Path) -> None:
    """Compile the C file of the task's reference to a library. Raises BuildError."""
    build(replace(target, source=target.reference_file, build=REFERENCE_FLAGS), tree, out)


def run_compiler(argv: Sequence[str], cwd: Path, writable: Path, *,
                 env: Mapping[str, str] | None = None, limits: Limits = BUILD_LIMITS,
                 yields: Turnstile | None = None, cancel: threading.Event | None = None,
                 name: str = "build") -> str:
    """Run a compiler that may write to one folder; return its report. Raises BuildError, Cancelled.
    """
    outcome = guard.run(argv, cwd=cwd, env=guard.clean_env(env, home=writable), limits=limits,
                        confine=Confine(writable=(str(writable),), cards=False), yields=yields,
                        cancel=cancel, name=name)
    if cancel is not None and cancel.is_set():
        raise Cancelled("stopped while building")
    report = outcome.stderr.decode(errors="replace")
    if not outcome.ok:
        raise BuildError(first_error(f"{report}\n{outcome.stdout.decode(errors='replace')}")
                         or f"the compiler {outcome.describe(limits)}")
    return report


def first_error(text: str) -> str:
    """Return the first error in a compiler's output, else its first line."""
    lines = [plain(line, 300) for line in text.splitlines()]
    errors = [line for line in lines if _ERROR.search(line)]
    return next(iter(errors or lines), "")


_REMARK = re.compile(
    r"^(?P<file>[^:\s]+):(?P<line>\d+):\d+: (?P<kind>optimized|missed): +(?P<text>.*)$")
_VECTORS = re.compile(r"loop vectorized using (?P<bytes>\d+) byte vectors")
_REASON = re.compile(r"not vectorized: *(?P<why>.*)$")
_NO_WIDER = re.compile(r"^ scalar_type: .*?(?P<type>\w+|vector\(.*)$")
"""The type that a loop's remark "no vectype" is about, on a line of its own."""


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A remark on one loop, by its line: its widest vectors (0: none), and why it has none."""

    line: int
    vector_bytes: int
    why: str = ""

    @property
    def is_nest(self) -> bool:
        """Whether it encloses other loops, whose remarks are more useful."""
        return "nest" in self.why


def remarks_of(target: Target, tree: Path, scratch: Path, *,
               yields: Turnstile | None = None) -> tuple[Remark, ...]:
    """Return gcc's remarks on the target's loops, by line; empty where the compiler gives none."""
    scratch.mkdir(parents=True, exist_ok=True)
    argv = [compiler(), *target.flags, "-fopt-info-vec-optimized-missed", "-c", "-fPIC", "-o",
            str(scratch / "remarks.o"), target.source]
    try:
        report = run_compiler(argv, tree, scratch, yields=yields, name="remarks")
    except BuildError:
        return ()
    source = (tree / target.source).read_text(errors="replace")
    return parse_remarks(report, Path(target.source).name, source)


def parse_remarks(text: str, source: str, code: str = "") -> tuple[Remark, ...]:
    """Parse `-fopt-info-vec` output; of a loop's versions, the one with the widest vectors counts.

    A loop that `code` already writes with vector types is left out: gcc only finds no wider ones.
    """
    loops: dict[int, int] = {}
    reasons: dict[int, str] = {}
    loop = 0
    for raw in text.splitlines():
        match = _REMARK.match(raw)
        if loop and (stated := _NO_WIDER.match(raw)) and _is_vector(stated["type"], code):
            loops.pop(loop, None)
        if match is None or Path(match["file"]).name != source:
            continue
        line, message = int(match["line"]), match["text"]
        if "couldn't vectorize loop" in message:
            loops.setdefault(line, 0)
            loop = line
        elif vectors := _VECTORS.search(message):
            loops[line] = max(loops.get(line, 0), int(vectors["bytes"]))
        elif (why := _REASON.search(message)) and loop:
            reasons.setdefault(loop, plain(why["why"], 120).rstrip(". "))
    return tuple(Remark(line=line, vector_bytes=width, why="" if width else reasons.get(line, ""))
                 for line, width in sorted(loops.items()))


def _is_vector(name: str, code: str) -> bool:
    """Return whether a type is one of the compiler's vectors, or a name that `code` gives to one.
    """
    return name.startswith(("vector(", "__m")) or any(
        re.search(rf"\b{name}\b", line) for line in code.splitlines() if "vector_size" in line)
