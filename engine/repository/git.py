"""Runs git commands for the engine, through GitPython.

No command sees hooks, the user's or the system's configuration, a pager, a prompt, a network
protocol or an inherited GIT_* variable.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import msgspec

from harness.errors import EnvironmentFault, KoptError

TIMEOUT_S = 600.0
_INHERITED = ("GIT_EXEC_PATH",)
"""Inherited variables that commands do see: where an unusual installation has git's programs."""

CLEARED: dict[str, str] = {}
"""The inherited variables that were removed from this process; git sees them in a `kopt merge`."""

OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
"""A full id, of SHA-1 or of SHA-256."""

NO_HOOKS = "-c core.hooksPath=/dev/null -c core.fsmonitor=false"
"""Repeated for the git that receives a push: git does not pass our settings on to it."""


class GitFailed(KoptError):
    """Raised when a git command fails: `what` is its error in one line, `printed` its output."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", printed: bytes = b"") -> None:
        super().__init__(what, where=where)
        self.printed = printed


class Git:
    """Git commands on one git directory, safe to use from several threads."""

    def __init__(self, git_dir: Path | None, work_tree: Path | None = None) -> None:
        self.git_dir = git_dir
        self.work_tree = work_tree
        """For commands that name none; the one in the repository's configuration may be gone."""

    def run(self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None,
            work_tree: Path | None = None, index: Path | None = None,
            env: Mapping[str, str] | None = None) -> bytes:
        """Run one git command and return its output.

        Raises GitFailed, or EnvironmentFault if git is missing, the disk is full or not writable,
        or the command took longer than TIMEOUT_S.
        """
        work_tree = work_tree or self.work_tree
        paths = {"GIT_DIR": self.git_dir, "GIT_WORK_TREE": work_tree, "GIT_INDEX_FILE": index}
        settings = {name: os.path.abspath(path) for name, path in paths.items() if path is not None}
        place = cwd or work_tree or self.git_dir
        if place is not None and not place.is_dir():
            raise EnvironmentFault("the folder is gone", where=str(place))
        guarded = _gitpython()
        try:
            process = guarded.GuardedGit(place).start(arguments, {**settings, **(env or {})})
        except guarded.git.GitCommandNotFound as error:
            raise _not_installed() from error
        except OSError as error:
            raise EnvironmentFault(f"git cannot be started: {error.strerror}",
                                   where=str(place or "")) from error
        try:
            printed, complaints = process.communicate(stdin, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise EnvironmentFault(f"git {arguments[0]} took longer than {TIMEOUT_S:.0f} s",
                                   where=str(place),
                                   fix="check that the file system responds") from error
        if process.returncode:
            raise _failure(arguments[0], printed, complaints, place)
        return bytes(printed)

    def line(self, *arguments: str, index: Path | None = None, stdin: bytes = b"",
             env: Mapping[str, str] | None = None) -> str:
        """Run one git command and return its output, one line."""
        printed = self.run(*arguments, index=index, stdin=stdin, env=env)
        return printed.decode(errors="surrogateescape").rstrip("\n")

    def find(self, name: str) -> str:
        """Return the id of the object with a name, "" if there is none."""
        if name.startswith("refs/") and self.git_dir is not None:
            with contextlib.suppress(OSError, ValueError):
                text = (self.git_dir / name).read_text().strip()
                if OBJECT_ID.fullmatch(text):
                    return text
        try:
            return self.line("rev-parse", "--verify", "--quiet", "--end-of-options", name)
        except GitFailed:
            return ""

    def find_each(self, *names: str) -> tuple[str, ...]:
        """Return the ids of the objects with some names, "" for each that is missing."""
        if any("\n" in name for name in names):
            return tuple(map(self.find, names))
        answer = self.run("cat-file", "--batch-check=%(objectname)", stdin="".join(
            f"{name}\n" for name in names).encode(errors="surrogateescape"))
        return tuple(line.decode() if OBJECT_ID.fullmatch(line.decode(errors="replace")) else ""
                     for line in answer.splitlines())


_FAULTS = {
    "No space left on device": "free some space",
    "Disk quota exceeded": "free some space",
    "Read-only file system": "make it writable",
    "Permission denied": "make it writable",
    "insufficient permission": "make it writable",
    "Too many open files": "raise `ulimit -n`",
}


def _failure(command: str, printed: bytes, complaints: bytes, place: Path | None) -> KoptError:
    """Return the error with the most telling line of git's, without control characters."""
    lines = [line.strip() for line in complaints.decode(errors="replace").splitlines()
             if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
    message = re.sub(r"^(fatal|error): ", "", telling[0] if telling else "failed")
    message = re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", message)[:300]
    for sign, fix in _FAULTS.items():
        if sign.encode() in complaints:
            return EnvironmentFault(f"git {command}: {message}", where=str(place or ""), fix=fix)
    return GitFailed(message, where=f"git {command}", printed=printed)


def init(path: Path, *, object_format: str = "sha1", branch: str = "main",
         bare: bool = False) -> Git:
    """Make an empty repository from no template. Raises GitFailed or EnvironmentFault."""
    options = (f"--object-format={object_format}", f"--initial-branch={branch}",
               *(("--bare",) if bare else ()))
    Git(None).run("init", "--quiet", "--template=", *options, f"./{path.name}", cwd=path.parent)
    return Git(path if bare else path / ".git")


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """Where a repository is; linked worktrees have a `git_dir` each and one `common_dir`."""

    git_dir: Path
    common_dir: Path
    work_tree: Path | None
    """None for a bare repository."""


def locate(path: Path) -> Location | None:
    """Return the repository around a folder, or None.

    Reads its configuration, so it must not be called for a slot's worktree.
    """
    guarded = _gitpython()
    try:
        repo = guarded.GuardedRepo(path, search_parent_directories=True, expand_vars=False)
    except (guarded.git.InvalidGitRepositoryError, guarded.git.NoSuchPathError, OSError):
        return None
    with contextlib.closing(repo):
        return Location(
            git_dir=Path(repo.git_dir), common_dir=Path(repo.common_dir).resolve(),
            work_tree=None if repo.bare else Path(repo.working_tree_dir).resolve())


def user_setting(folder: Path, name: str) -> str:
    """Return a path in the user's own configuration, "" if it is not set there.

    The only command that sees this configuration.
    """
    guarded = _gitpython()
    try:
        return str(guarded.git.Git(folder).config("--type=path", "--get", name))
    except guarded.git.GitCommandError:
        return ""


def _gitpython() -> ModuleType:
    """Import GitPython in an environment without inherited git variables.

    A single GIT_DIR or GIT_CONFIG_COUNT would redirect every command, and GitPython passes on the
    whole environment of this process.
    """
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        if name not in _INHERITED:
            CLEARED[name] = os.environ.pop(name)
    try:
        from engine.repository import guarded_git  # importing it needs git and a clean environment
    except ImportError as error:  # GitPython calls git when it is imported
        if shutil.which("git") is None:
            raise _not_installed() from error
        raise EnvironmentFault(f"GitPython cannot be imported: {error}",
                               fix="install kopt again, with its dependencies") from error
    return guarded_git


def _not_installed() -> EnvironmentFault:
    return EnvironmentFault("git is not installed", fix="install git 2.32 or newer")
