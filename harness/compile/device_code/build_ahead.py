"""Builds a source's next configurations in the background, for trials that then find them built."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from harness.compile.device_code.device_build import DeviceCompiler
from harness.compile.place import Place
from harness.errors import KoptError
from harness.formats import file_copy
from harness.tasks.target import Target

MOST_BUILDS = 4
"""Most builds at once; each is a process of its own."""


class BuildAhead:
    """Builds variants of one target's source in copies of a tree; `close` ends the compilers."""

    def __init__(self, target: Target, place: Place, tree: Path, folder: Path) -> None:
        self._tree, self._folder, self.stop = tree, folder, threading.Event()
        self._compiler = DeviceCompiler(target, replace(place, cancel=self.stop))
        self._workers = max(1, min(MOST_BUILDS, len(os.sched_getaffinity(0)) - 1))
        self._pool = ThreadPoolExecutor(self._workers, "kopt-builds")
        self._futures: dict[str, Future[None]] = {}

    @property
    def room(self) -> int:
        """How many more builds may be requested: as many may wait as run at once."""
        return 2 * self._workers - sum(not each.done() for each in self._futures.values())

    def expect(self, text: str) -> None:
        """Build this source text in the background, unless that was already requested."""
        key = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
        if key not in self._futures:
            self._futures[key] = self._pool.submit(self._build, key, text)

    def close(self) -> None:
        self.stop.set()
        self._pool.shutdown(cancel_futures=True)
        file_copy.remove(self._folder)

    def _build(self, key: str, text: str) -> None:
        tree = self._folder / key
        with suppress(KoptError, OSError):  # the trial reports it
            file_copy.copy_sources(self._tree, tree)
            (tree / self._compiler.target.source).write_bytes(text.encode())
            self._compiler.build(tree)
        file_copy.remove(tree)
