"""Compiles test files for pytest before its workers start, as otherwise each worker would."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def write(config: pytest.Config, folder: Path) -> None:
    """Write pytest's cache file, with rewritten assertions, of each test file that has none."""
    missing = [path for path in folder.rglob("test_*.py") if not _kept(path).exists()]
    cores = (os.cpu_count() or 1) if missing else 0
    forks = []
    for first in range(cores):
        if not (fork := os.fork()):
            try:
                _write(config, missing[first::cores])
            finally:
                os._exit(0)
        forks.append(fork)
    for fork in forks:
        os.waitpid(fork, 0)


def _write(config: pytest.Config, paths: list[Path]) -> None:
    for path in paths:
        stat, code = rewrite._rewrite_test(path, config)
        _kept(path).parent.mkdir(exist_ok=True)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, _kept(path))


def _kept(path: Path) -> Path:
    return rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
