"""One side of a comparison: a kernel from a tree, built if its language requires it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.compile import c_compiler
from harness.compile.c_compiler import BuildError
from harness.compile.device_code.device_build import DeviceCompiler
from harness.compile.kernel_resources import KernelResources
from harness.compile.place import Place
from harness.compile.stream_usage import one_stream
from harness.formats.text import plain
from harness.tasks.target import OF_CARD, Target

MOST_SIBLINGS = 50


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
