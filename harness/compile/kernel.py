"""One side of a comparison: a kernel from a tree, built if its language requires it."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.compile import c_compiler
from harness.compile.c_compiler import BuildError
from harness.compile.device_code.device_build import DeviceCompiler
from harness.compile.kernel_resources import KernelResources
from harness.devices.device import Device
from harness.errors import InputError
from harness.formats.text import plain
from harness.isolation.device_lock import Turnstile
from harness.isolation.guard import clean_env
from harness.isolation.zygote_client import Zygote, ZygoteKind
from harness.tasks.target import OF_CARD, Target

MOST_SIBLINGS = 50


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where kernels run and are built: the device, the Python, the folder they may write below.

    `device` is torch's name in a process that sees no other card: "cpu" or "cuda:0". `interpret`
    says that Triton's interpreter runs the kernels.
    """

    device: str = "cpu"
    scratch: str
    python: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    interpret: bool = False
    arch: str = ""
    """The card's architecture, such as "sm_90"; empty for the CPU."""
    nodes: tuple[str, ...] = ()
    """The files below /dev of the cards that kernels may open, empty for all."""
    yields: Turnstile | None = None
    """Makes builds and untimed calls stop while other processes measure."""
    zygote: Zygote | None = None
    """Forks the processes that need its imports."""
    cancel: threading.Event | None = None


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel that a runner can load.

    Equal code has an equal `identity`; `sha256` is of the file that the runner loads; `name` is the
    side of the comparison; `adapter` is the baseline's file with the target's adapter, if any.
    """

    name: str
    target: Target
    artifact: str
    sha256: str
    identity: str
    root: str
    place: Place
    adapter: str = ""
    symbol: str = ""
    """The entry's name in compiled code, if it differs from the target's."""
    launches: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    resources: tuple[KernelResources, ...] = ()
    any_mode: bool = False
    """Whether it may change the processor's floating-point mode, as its baseline does."""

    @property
    def home(self) -> Path:
        """The private folder of its runners: HOME, temporary files, compiled kernels."""
        return Path(self.place.scratch) / f"home-{self.name}"

    @property
    def tunes_itself(self) -> bool:
        """Whether its first call may time configurations, so that nothing else may run then."""
        if self.target.is_compiled:
            return False
        source = Path(self.artifact)
        return any(b"autotune" in path.read_bytes() for path in
                   [source, *sorted(source.parent.glob("*.py"))[:MOST_SIBLINGS]] if path.is_file())

    @property
    def one_stream(self) -> bool:
        """Whether all its work certainly runs on one stream of a card."""
        return self.target.language == "triton" and self.target.num_gpus == 1 and \
            one_stream(Path(self.root), Path(self.artifact))

    def job(self) -> dict[str, Any]:
        """Return the request with which a runner loads it."""
        return {"language": self.target.language, "artifact": self.artifact, "root": self.root,
                "sha256": self.sha256, "entry": self.symbol or self.target.entry,
                "adapter": self.adapter, "adapter_function": self.target.adapter_function,
                "launches": self.launches,
                "returns": self.target.returns, "device": self.place.device,
                "interpret": self.place.interpret,
                "any_mode": self.any_mode or has_fast_math(self.target)}


FAST_MATH = {"-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-mdaz-ftz"}
"""Flags by which a compiler sets the processor's floating-point mode when a library is loaded."""


def has_fast_math(target: Target) -> bool:
    """Return whether the build flags of a target set the floating-point mode."""
    return not FAST_MATH.isdisjoint(target.flags)


IMPORTS_TRITON = re.compile(rb"^\s*(?:import|from)\s+triton\b", re.MULTILINE)


def imports_triton(target: Target, *trees: str) -> bool:
    """Return whether the source of a Python target imports Triton in one of these trees."""
    sources = (Path(tree) / target.source for tree in trees)
    return target.language == "python" and any(
        IMPORTS_TRITON.search(source.read_bytes()) for source in sources if source.is_file())


def place_on(device: Device, language: str, *, scratch: str, python: str | None,
             env: Mapping[str, str], has_triton: bool = False) -> Place:
    """Return the place for kernels on a device; Triton is interpreted on the CPU.

    `has_triton` says that the sources of a Python target import Triton.
    """
    on_cpu = device.kind == "cpu"
    return Place(device="cpu" if on_cpu else "cuda:0", scratch=scratch, python=python,
                 env={**env, **device.visible_env},
                 interpret=on_cpu and (has_triton or language == "triton"),
                 arch="" if on_cpu else device.arch, nodes=device.all_nodes)


def kind_of(place: Place, language: str) -> ZygoteKind:
    """Return the kind of zygote for a place and a language.

    For C it imports numpy, for oracles, and runs in kopt's own Python. For Python it also imports
    Triton where that can run, since candidates often use it.
    """
    if language == "python" and (place.interpret or place.device != "cpu"):
        language = "triton"
    env = clean_env({**place.env, **({"TRITON_INTERPRET": "1"} if place.interpret else {})})
    python = None if language == "c" else place.python
    return ZygoteKind(python=python or sys.executable, language=language,
                      env=tuple(sorted(env.items())))


def make(target: Target, tree: Path, name: str, place: Place, *,
         base: Path | None = None) -> Kernel:
    """Build the target's source in `tree`, or check its syntax; the adapter is that of `base`.

    Without a base the adapter is the tree's own. Raises BuildError.
    """
    source = tree / target.source
    try:
        text = source.read_bytes()
    except OSError as error:
        raise BuildError(f"{target.source}: {error.strerror}") from None
    if target.language in OF_CARD:
        built = DeviceCompiler(target, place).build(tree)
        return Kernel(name=name, target=target, artifact=built.path, sha256=built.sha256,
                      identity=built.identity, root=str(tree), place=place, symbol=built.symbol,
                      launches=built.launches, resources=built.resources)
    if target.language == "c":
        out = Path(place.scratch) / "build" / name / "kernel.so"
        digest = c_compiler.build(target, tree, out, yields=place.yields, cancel=place.cancel)
        return Kernel(name=name, target=target, artifact=str(out), sha256=digest,
                      identity=digest, root=str(tree), place=place)
    try:
        compile(text, target.source, "exec")
    except SyntaxError as error:
        raise BuildError(f"{target.source}:{error.lineno or 1}: {plain(error.msg)}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BuildError(f"{target.source}: {error or 'nested too deeply'}") from None
    return Kernel(name=name, target=target, artifact=str(source), root=str(tree), place=place,
                  sha256=hashlib.sha256(text).hexdigest(), identity=_identity(tree, source),
                  adapter=str((base or tree) / target.adapter_file) if target.adapter else "")


def _identity(tree: Path, source: Path) -> str:
    """Hash every Python file of a tree, since the kernel may import any of them."""
    digest = hashlib.sha256()
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "__pycache__")))
        for name in sorted(files):
            path = Path(folder) / name
            if path == source or (name.endswith(".py") and path.is_file()):
                digest.update(f"{path.relative_to(tree)}\0".encode(errors="surrogateescape"))
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def scratch_inside(folder: Path, name: str) -> Path:
    """Create and return a folder below `folder`. Raises InputError where it cannot be written."""
    path = folder / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write here: {error.strerror}", where=str(path)) from None
    return path


ONE_STREAM = frozenset({"torch", "triton", "numpy"})
"""Packages that run on the caller's stream, except for functions named in `WORDS`."""
WORDS = re.compile(
    rb"stream(?!ing)|async_op|distributed|symm_mem|load_inline|cpp_extension|load_library|dlopen"
    rb"|ctypes|cffi|__import__|importlib|\bexec\b|\beval\b", re.IGNORECASE)
"""Words of code that may create streams; "streaming" is about caches, and allowed."""
MOST_FILES = 200


def one_stream(root: Path, source: Path) -> bool:
    """Return whether everything that a source of a project reaches runs on one stream of a card.

    The files are only read: neither the source nor a project file that it imports may mention
    streams, functions that create them, or code that cannot be read here. If in doubt, the answer
    is False.
    """
    waiting, seen = [source], {source}
    while waiting:
        path = waiting.pop()
        try:
            text = path.read_bytes()
            imported = [(level, name, _files(root, path, level, name))
                        for level, name in _modules(ast.parse(text))]
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        if WORDS.search(text) or len(seen) > MOST_FILES:
            return False
        for level, name, files in imported:
            top = name.partition(".")[0]
            if not files and (level or top not in ONE_STREAM | sys.stdlib_module_names):
                return False
            waiting += [file for file in files if file not in seen]
            seen.update(files)
    return True


def _modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the level and name of every import: a module, or a name inside one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.level, ".".join(filter(None, (node.module, alias.name))))
                        for alias in node.names)


def _files(root: Path, importer: Path, level: int, name: str) -> list[Path]:
    """Return the project's files that may be a module of this name, with those of its packages."""
    above = [folder for folder in importer.parents if folder.is_relative_to(root)]
    folders = above[level - 1:level] if level else [importer.parent, root]
    files = []
    for folder in folders:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            path = folder.joinpath(*parts[:count])
            files += [file for file in (path.with_name(f"{path.name}.py"), path / "__init__.py")
                      if file.is_file()]
    return list(dict.fromkeys(files))
