"""Write the files of `kopt new` into a project, and restore the old ones if it ends early."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from engine.discovery.module.draft_module import FOLDER
from engine.manifest.load import dump
from engine.manifest.schema import Manifest
from harness.formats import file_copy

ENDING = (signal.SIGTERM, signal.SIGHUP)


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write a manifest atomically, without the values that equal their defaults."""
    file_copy.replace_file(path, dump(manifest, brief=True).encode())


@contextlib.contextmanager
def all_or_nothing(project: Path, task: str, folder: str = FOLDER) -> Iterator[None]:
    """Restore the task and the folder of its files if the `with` block raises.

    In the main thread, SIGTERM and SIGHUP without a handler raise SystemExit in the block.
    """
    before = {path: path.read_bytes() for path in _files(project, task, folder)}
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.signal(number, lambda number, _: sys.exit(128 + number))
                for number in ENDING
                if is_main and signal.getsignal(number) is signal.SIG_DFL}
    try:
        yield
    except BaseException:
        for path in _files(project, task, folder):
            if path not in before:
                path.unlink(missing_ok=True)
        for path, content in before.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        _remove_empty(project / folder)
        _remove_empty(project / FOLDER)
        raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _files(project: Path, task: str, folder: str) -> list[Path]:
    paths = {project / task, *(project / folder).rglob("*")}
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def _remove_empty(folder: Path) -> None:
    """Remove a folder and those in it, deepest first, as far as they are empty."""
    for path in sorted((folder, *folder.rglob("*")), reverse=True):
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
