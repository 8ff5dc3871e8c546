"""Real git repositories for tests, made with plain git."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

KERNEL = "".join(f"float line_{n}(float x) {{ return x * {n}.0f; }}\n" for n in range(40))

FILES = {
    "kernel.c": KERNEL,
    "reference.py": "def rmsnorm(x, weight, eps):\n    return x\n",
    "task.yaml": "kind: kernel\nop: rmsnorm\n",
    "src/deep/helper.h": "#define N 4\n",
    ".gitignore": "*.tmpfile\n",
}

ENVIRONMENT = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_AUTHOR_NAME": "ann", "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "ann", "GIT_COMMITTER_EMAIL": "a@b", "LC_ALL": "C",
    "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000",
    "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "maintenance.auto", "GIT_CONFIG_VALUE_0": "false",
}


def git(where: Path, *arguments: str, stdin: str = "") -> str:
    """Run git as a user or a worker would, in a folder or bare repository."""
    done = subprocess.run(["git", *arguments], cwd=where, env=ENVIRONMENT, capture_output=True,
                          text=True, check=False, input=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


def project(path: Path, files: dict[str, str] | None = None) -> Path:
    """Make a project with one commit."""
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    _commit(path, FILES if files is None else files, "start")
    return path


def commit(path: Path, files: dict[str, str], message: str = "start") -> str:
    _commit(path, files, message)
    return git(path, "rev-parse", "HEAD")


def _commit(path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", message)


def files(folder: Path) -> dict[str, str]:
    """Return the files in a folder by path, without git's own."""
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*"))
            if p.is_file() and ".git" not in p.relative_to(folder).parts}


def message(git_dir: Path, commit: str) -> str:
    return git(git_dir, "log", "-1", "--format=%B", commit).strip()


def submodule(path: Path, other: Path, place: str, *more: str) -> None:
    """Commit another project as a submodule, checked out with its own submodules."""
    local = ("-c", "protocol.file.allow=always")
    git(path, *local, "submodule", "--quiet", "add", *more, str(other), place)
    git(path, "commit", "-q", "-m", place)
    git(path, *local, "submodule", "--quiet", "update", "--init", "--recursive")


def pointer(data: bytes) -> str:
    """Return what a commit contains instead of a file that is stored with Git LFS."""
    return (f"version https://git-lfs.github.com/spec/v1\n"
            f"oid sha256:{hashlib.sha256(data).hexdigest()}\nsize {len(data)}\n")


def store(path: Path, data: bytes) -> None:
    """Put the contents of a file where `git lfs` keeps them."""
    name = hashlib.sha256(data).hexdigest()
    place = path / ".git/lfs/objects" / name[:2] / name[2:4] / name
    place.parent.mkdir(parents=True)
    place.write_bytes(data)


def edited(text: str, line: int, new: str) -> str:
    """Return a text with one line replaced, counted from 0."""
    lines = text.splitlines(keepends=True)
    lines[line] = new + "\n"
    return "".join(lines)
