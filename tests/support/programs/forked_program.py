"""Runs programs with torch and triton in forks of the worker's zygote, which has imported both."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from harness.isolation import guard
from harness.isolation.process_outcome import Limits
from harness.isolation.zygote_client import Zygote
from tests.support.programs import shared_zygotes


def output(program: Path, *words: str, folder: Path, interpret: bool,
           env: Mapping[str, str] | None = None) -> str:
    """Run a program, which must end with exit code 0, and return what it printed."""
    zygote: Zygote | None = \
        shared_zygotes.zygote("triton") if interpret else shared_zygotes.compiler()
    assert zygote is not None
    variables = guard.clean_env({
        "TRITON_CACHE_DIR": str(folder / "cache"), "CUDA_VISIBLE_DEVICES": "",
        "TRITON_INTERPRET": str(int(interpret)), "OMP_NUM_THREADS": "1", **(env or {})},
        home=folder)
    outcome = guard.run([sys.executable, str(program), *words], cwd=folder, env=variables,
                        limits=Limits(wall_s=220.0), zygote=zygote, program=str(program),
                        words=words)
    assert outcome.returncode == 0, (outcome.stdout[-200:] + outcome.stderr[-2000:]).decode()
    return outcome.stdout.decode()
