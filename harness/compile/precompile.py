"""Compile configurations before they run: in parallel, in guarded processes, on the CPU.

One compilation yields both the entries of Triton's cache and the resources that the kernels need.
It is done by `harness.compile.triton_aot`, whose process runs the configuration's own host code.
Each configuration therefore has a folder of its own, which no other process may write to, and
`give` copies from it into the home of runners of the same configuration. Nothing else reads it, so
that no candidate finds files planted by another. The shared part, C modules made from Triton's own
text and a list of types, is built by a process that loads no candidate.

The key of Triton's cache covers the kernel's text, line and module name, what it calls and reads,
argument types, alignments and constants, options, architecture, Triton's own files, ptxas' version,
and environment variables that are equal for compiler and runner; it does not cover the file's path.
But the index of each kernel contains absolute paths, and is rewritten when a cache is copied.
"""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from harness.compile import compiler_cache, kernel_resources, triton_aot
from harness.compile.kernel import Kernel
from harness.compile.kernel_resources import KernelResources
from harness.compile.place import Place
from harness.compile.triton_aot import AOT_LIMITS
from harness.devices import datasheets
from harness.errors import Cancelled, EnvironmentFault, KoptError
from harness.formats import file_copy
from harness.isolation.rpc import PeerDied, PeerError
from harness.tasks.target import Target

LIMITS = replace(AOT_LIMITS, wall_s=120.0)
NICE = 10


@dataclass(frozen=True, kw_only=True)
class CompileResult:
    """A configuration's resources, why its card cannot launch it, or why it does not compile."""

    resources: tuple[KernelResources, ...] = ()
    reasons: tuple[str, ...] = ()
    error: str = ""


class Precompiler:
    """Compiles sources of one target for one architecture in parallel. Thread-safe.

    A source replaces the target's own file in a copy of `tree`. Close it to end running compilers.
    """

    def __init__(self, target: Target, tree: Path, arch: str, place: Place) -> None:
        self.target, self.tree, self.arch, self.scratch = target, tree, arch, Path(place.scratch)
        self.workers = max(1, len(os.sched_getaffinity(0)) - 1)
        self._cancel = _Either(place.cancel)
        self._place = replace(place, cancel=self._cancel)
        self._pool = ThreadPoolExecutor(self.workers, "kopt-ahead")
        self._lock, self._building = threading.Lock(), threading.Lock()
        self._futures: dict[str, Future[CompileResult]] = {}
        self._sources: dict[str, str] = {}
        self._built: set[tuple[str, ...]] | None = None
        self.no_stubs = ""
        """Why the shared modules could not be built; each launch then builds its own."""

    def expect(self, source: str) -> str:
        """Compile a source in the background, unless requested before; return its key."""
        key = hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()[:16]
        with self._lock:
            if key not in self._futures:
                self._sources[key] = source
                self._futures[key] = self._pool.submit(self._compile, key, source)
        return key

    def get(self, key: str) -> CompileResult:
        """Return the result for a key, compiling it now if it is still queued. Raises Cancelled."""
        future = self._futures[key]
        if future.cancel():  # it was queued behind others
            future = Future()
            try:
                future.set_result(self._compile(key, self._sources[key]))
            except BaseException as error:
                future.set_exception(error)
            self._futures[key] = future
        return future.result()

    @property
    def room(self) -> int:
        """How many more sources may be queued: as many may wait as are being compiled."""
        with self._lock:
            return 2 * self.workers - sum(not future.done() for future in self._futures.values())

    def future(self, key: str) -> Future[CompileResult]:
        """Return the future result of an expected source."""
        return self._futures[key]

    def give(self, key: str, kernel: Kernel) -> int:
        """Copy compiled code into the home of the runners of a kernel with the same source.

        Returns the number of kernels and modules copied. No runner may have called the kernel yet.
        """
        return sum(compiler_cache.adopt(cache, kernel.home, compiler_cache.TRITON) for cache in (
            triton_aot.cache_in(self._folder(key)), self._stubs / "triton"))

    def forget(self, key: str) -> None:
        """Remove the compiled code of a source; a later `expect` compiles it again."""
        with self._lock:
            future = self._futures.pop(key, None)
            self._sources.pop(key, None)
        if future is not None and (future.cancel() or future.done()):
            file_copy.remove(self._folder(key))

    def close(self) -> None:
        self._cancel.set()
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Precompiler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _stubs(self) -> Path:
        return self.scratch / "stubs"

    def _folder(self, key: str) -> Path:
        return self.scratch / key

    def _compile(self, key: str, source: str) -> CompileResult:
        if self._cancel.is_set():
            raise Cancelled("stopped")
        tree = self._folder(key) / "tree"
        try:
            file_copy.copy_sources(self.tree, tree)
            (tree / self.target.source).write_bytes(source.encode(errors="surrogatepass"))
            inspection = triton_aot.inspect(
                self.target, tree, self.arch, replace(self._place, scratch=str(self._folder(key))),
                cached=True, nice=NICE, limits=LIMITS)
            self._build(inspection.signatures)
        except Cancelled:
            raise
        except (KoptError, OSError) as error:
            return CompileResult(error=str(error))
        finally:
            file_copy.remove(tree)
        return CompileResult(resources=inspection.resources,
                             reasons=kernel_resources.all_unlaunchable(inspection.resources))

    def _build(self, signatures: tuple[tuple[str, ...], ...]) -> None:
        """Build the modules that launches with these argument types need, once each."""
        arch = datasheets.find_arch(self.arch)
        if arch is None or arch.backend != "cuda":
            return
        with self._building:
            missing = set(signatures) - (self._built or set())
            if self.no_stubs or (self._built is not None and not missing):
                return
            self._built = (self._built or set()) | missing
            self._stubs.mkdir(parents=True, exist_ok=True)
            try:
                with triton_aot.peer(self._place, self._stubs, limits=LIMITS) as builder:
                    answer = builder.ask("stubs", signatures=sorted(missing))
                self.no_stubs = "; ".join(answer["failed"])
            except (PeerError, PeerDied, EnvironmentFault) as error:
                self.no_stubs = error.what


class _Either(threading.Event):
    """Set when it is set itself, or when another event is."""

    def __init__(self, other: threading.Event | None) -> None:
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        return super().is_set() or (self._other is not None and self._other.is_set())
