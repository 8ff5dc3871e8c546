"""The folder of one runner process: HOME, temporary files, working folder and compiler caches.

It has a random name and is removed when the process ends, so that no process finds what another
one has written. Compiled code of a kernel is kept in its `Kernel.home`, to which only the harness
writes: it copies the code there from the process that is checked, before anything is timed, and
every later process starts with a copy.

Where processes are confined, the copy appears at the path of the kept cache, because build files
name absolute paths; the folders of other processes are hidden.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from harness.compile import compiler_cache
from harness.compile.compiler_cache import adopt
from harness.compile.kernel import Kernel
from harness.formats import file_copy
from harness.formats.file_copy import FolderTooLarge
from harness.isolation.confinement import Confine
from harness.isolation.guard import clean_env

FOLDER = "runners"
"""Name of the folder of all runners' folders, below the scratch folder."""
MOST_BYTES = 2 << 30
_TRITON = compiler_cache.TRITON[-1]


def has_compiled(kernel: Kernel) -> bool:
    """Return whether compiled code of a kernel is kept."""
    return any((kernel.home / compiler_cache.FOLDER).glob("*/*"))


class ProcessHome:
    """The folder of one process, made for a kernel; other kernels may join a shared process.

    `confined` is whether the process has its own view of the file system. `frozen` are the
    identities of kernels that have been timed: what their processes compile is not kept.
    """

    def __init__(self, kernel: Kernel, *, confined: bool, frozen: Collection[str],
                 lock: threading.Lock) -> None:
        self._kernel, self._frozen, self._lock = kernel, frozen, lock
        self._parent = Path(kernel.place.scratch) / FOLDER
        self.path = self._parent / secrets.token_hex(16)
        self.path.mkdir(mode=0o700, parents=True)
        self._caches = self.path / compiler_cache.FOLDER
        self._appears_at = self._caches
        self._compiles = kernel.target.language != "c"
        self.keeps_compiled = False
        """Whether what it compiles is kept for later processes of the same kernel."""
        self._seeded = False
        self._known: set[str] = set()
        if self._compiles:
            self._caches.mkdir()
            if confined:
                self._appears_at = kernel.home / compiler_cache.FOLDER
                self._appears_at.mkdir(parents=True, exist_ok=True)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the process."""
        return clean_env(compiler_cache.private(
            {**variables, "TRITON_HOME": str(self.path)}, self._appears_at.parent), home=self.path)

    def confine(self, *more: str) -> Confine:
        """Return the confinement of the process, which may write to its folder and to `more`."""
        binds = () if self._appears_at == self._caches else \
            ((str(self._caches), str(self._appears_at)),)
        return Confine(writable=(str(self.path), *more), binds=binds,
                       hidden=(str(self._parent),), nodes=self._kernel.place.nodes)

    def seed(self, kernel: Kernel) -> None:
        """Copy what was compiled for a kernel into this folder, before the process loads it."""
        store = kernel.home / compiler_cache.FOLDER
        if not self._compiles or not store.is_dir():
            return
        with self._lock:
            if (store / _TRITON).is_dir():
                adopt(store / _TRITON, self._caches, (_TRITON,), known=self._known,
                      appears_at=self._appears_at)
            if not self._seeded:  # later the process may have placed links here
                _copy(store, self._caches)
            self._seeded = True

    def store_compiled(self) -> None:
        """Keep the process's compiled code for later processes of its kernel; once only."""
        if not self.keeps_compiled or not self._compiles:
            return
        self.keeps_compiled = False
        with self._lock:
            if self._kernel.identity not in self._frozen:
                store = self._kernel.home / compiler_cache.FOLDER
                store.mkdir(parents=True, exist_ok=True)
                if any((self._caches / _TRITON).glob("*/*")):
                    adopt(self._caches / _TRITON, store, (_TRITON,), known=set(self._known))
                _copy(self._caches, store)

    def remove(self) -> None:
        """Remove the folder after the process has ended."""
        for path in (self._caches, self.path):  # a kernel that wrote nothing leaves both empty
            with contextlib.suppress(OSError):
                path.rmdir()
        if self.path.exists():
            file_copy.remove(self.path)
        with contextlib.suppress(OSError):
            self._parent.rmdir()


def _copy(source: Path, target: Path) -> None:
    """Copy all caches except Triton's; skip files that the target already has."""
    def missing(name: str) -> bool:
        return not name.endswith(".lock") and not os.path.lexists(target / name)

    with contextlib.suppress(FolderTooLarge, OSError):  # the process then compiles again
        file_copy.copy_folder(source, target, most_bytes=MOST_BYTES, should_copy=missing,
                              enter=lambda name: name != _TRITON)
