"""Running git for the engine: always with an explicit git directory, never with hooks, the user's
or the system's configuration, a pager, a prompt or a network protocol.

GitPython is not used for this: it starts git with the whole inherited environment, in which a
single GIT_DIR or GIT_CONFIG_COUNT redirects every command.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import EnvironmentFault, KoptError

TIMEOUT_S = 600.0

_CONFIG = {
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.excludesFile": os.devnull,
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.quotePath": "true",
    "core.untrackedCache": "false",
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "protocol.file.allow": "always",
    "submodule.recurse": "false",
    "transfer.advertiseSID": "false",
}

_ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "file",
    "GIT_ASKPASS": "true",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_AUTHOR_EMAIL": "kopt@localhost",
    "GIT_AUTHOR_NAME": "kopt",
    "GIT_COMMITTER_EMAIL": "kopt@localhost",
    "GIT_COMMITTER_NAME": "kopt",
    "GIT_CONFIG_GLOBAL": str(Path(__file__).with_name("gitconfig")),
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_EDITOR": "false",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_SSH_COMMAND": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": os.devnull,
    "LC_ALL": "C",
    "SSH_ASKPASS": "true",
    "XDG_CONFIG_HOME": os.devnull,
    "GIT_CONFIG_COUNT": str(len(_CONFIG)),
    **{f"GIT_CONFIG_KEY_{n}": key for n, key in enumerate(_CONFIG)},
    **{f"GIT_CONFIG_VALUE_{n}": value for n, value in enumerate(_CONFIG.values())},
}

_INHERITED = ("PATH", "LD_LIBRARY_PATH", "GIT_EXEC_PATH", "TMPDIR")

NO_HOOKS = "-c core.hooksPath=/dev/null -c core.fsmonitor=false"
"""Said again to the git that serves a push: git hides our settings from it."""


class GitFailed(KoptError):
    """A git command said no; `what` is its complaint in one line, `printed` its output."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", printed: bytes = b"") -> None:
        super().__init__(what, where=where)
        self.printed = printed


class Git:
    """Git commands on one git directory, safe to use from several threads."""

    def __init__(self, git_dir: Path | None, work_tree: Path | None = None) -> None:
        self.git_dir = git_dir
        self.work_tree = work_tree
        """For commands that name none; the one that the repository says may be gone."""

    def run(self, *arguments: str, stdin: bytes = b"", cwd: Path | None = None,
            work_tree: Path | None = None, index: Path | None = None,
            env: Mapping[str, str] | None = None, ok: Sequence[int] = (0,)) -> bytes:
        """Run one git command and return what it printed.

        Raises GitFailed with git's complaint, or EnvironmentFault if git is missing, the disk is
        full or it took longer than TIMEOUT_S.
        """
        work_tree = work_tree or self.work_tree
        given = {"GIT_DIR": self.git_dir, "GIT_WORK_TREE": work_tree, "GIT_INDEX_FILE": index}
        named = {name: os.path.abspath(path) for name, path in given.items() if path is not None}
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        place = cwd or work_tree or self.git_dir
        try:
            done = subprocess.run(
                ["git", *arguments], input=stdin, capture_output=True, cwd=place,
                env={**inherited, **_ENVIRONMENT, **named, **(env or {})}, timeout=TIMEOUT_S,
                check=False, start_new_session=True,  # ctrl-c must not tear a commit in half
            )
        except OSError as error:
            raise _not_started(error, place) from error
        except subprocess.TimeoutExpired as error:
            raise EnvironmentFault(f"git {arguments[0]} took longer than {TIMEOUT_S:.0f} s",
                                   where=str(place), fix="look at the file system") from error
        if done.returncode not in ok:
            raise _failure(arguments[0], done, place)
        return done.stdout

    def line(self, *arguments: str, index: Path | None = None, stdin: bytes = b"",
             env: Mapping[str, str] | None = None) -> str:
        """Run one git command that prints one line and return it."""
        printed = self.run(*arguments, index=index, stdin=stdin, env=env)
        return printed.decode(errors="surrogateescape").rstrip("\n")

    def find(self, name: str) -> str:
        """Return the object that a name means, or "" if there is none."""
        try:
            return self.line("rev-parse", "--verify", "--quiet", "--end-of-options", name)
        except GitFailed:
            return ""


def _one_line(stderr: bytes) -> str:
    """Return the line of git's complaints that says most, without control characters."""
    lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines or ["failed"]
    bare = re.sub(r"^(fatal|error): ", "", told[0])
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", bare)[:300]


_FAULTS = {
    "No space left on device": "free some space",
    "Disk quota exceeded": "free some space",
    "Read-only file system": "make it writable",
    "Permission denied": "make it writable",
    "insufficient permission": "make it writable",
    "Too many open files": "raise `ulimit -n`",
}


def _failure(command: str, done: subprocess.CompletedProcess[bytes],
             place: Path | None) -> KoptError:
    what = _one_line(done.stderr)
    for sign, fix in _FAULTS.items():
        if sign.encode() in done.stderr:
            return EnvironmentFault(f"git {command}: {what}", where=str(place or ""), fix=fix)
    return GitFailed(what, where=f"git {command}", printed=done.stdout)


def _not_started(error: OSError, place: Path | None) -> KoptError:
    if place is not None and not place.is_dir():
        return EnvironmentFault("the folder is gone", where=str(place))
    if isinstance(error, FileNotFoundError):
        return EnvironmentFault("git is not installed", fix="install git 2.32 or newer")
    return EnvironmentFault(f"git cannot be started: {error.strerror}", where=str(place or ""))
