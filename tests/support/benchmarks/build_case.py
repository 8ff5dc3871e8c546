"""A project that make builds from two C files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support import repos

MAKEFILE = """\
lib.so: kernel.o slow.o
\tgcc -shared -o $@ $^
%.o: %.c
\tgcc -O1 -fPIC -c $<
"""
BUILT = ("*.o", "*.so")


def with_build(root: Path) -> Path:
    user = repos.project(root / "user", {
        "kernel.c": "int kernel(void) { return 1; }\n", "slow.c": "int slow(void) { return 2; }\n",
        "Makefile": MAKEFILE, ".gitignore": "*.o\n*.so\n"})
    make(user)
    return user


def make(folder: Path) -> list[str]:
    """Run make; return the last argument of each gcc command that ran."""
    env = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    done = subprocess.run(["make"], cwd=folder, check=True, capture_output=True, text=True,
                          env=env)  # under `make -s test`, MAKEFLAGS would silence it
    return [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("gcc")]
