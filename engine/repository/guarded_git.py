"""GitPython, with kopt's settings in place of the user's, the system's and inherited ones.

Only engine.repository.git imports this module, and only when a git command runs: GitPython takes
50 ms to import.

What is not left to GitPython, and why:
- Its objects, index and references know ids of 20 bytes only, and a project may use SHA-256. They
  are read and written by git commands, which GitPython starts.
- `GuardedRepo` reads a repository's configuration in this process, so it opens the campaign's clone
  and the user's project, never a slot's worktree, whose `.git/config` a worker has written.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import git

_FOLDER = Path(__file__).parent
_SETTINGS: dict[str, dict[str, str]] = tomllib.loads((_FOLDER / "git_settings.toml").read_text())
_CONFIG = _SETTINGS["config"]

ENVIRONMENT = {
    **_SETTINGS["environment"],
    "GIT_CONFIG_GLOBAL": str(_FOLDER / "gitconfig"),
    "GIT_CONFIG_COUNT": str(len(_CONFIG)),
    **{f"GIT_CONFIG_KEY_{n}": key for n, key in enumerate(_CONFIG)},
    **{f"GIT_CONFIG_VALUE_{n}": value for n, value in enumerate(_CONFIG.values())},
}


class GuardedGit(git.Git):
    """GitPython's command line: hooks, pagers, prompts and network protocols are off."""

    def __init__(self, working_dir: str | os.PathLike[str] | None = None) -> None:
        super().__init__(None if working_dir is None else os.fspath(working_dir))
        self.update_environment(**ENVIRONMENT)

    def start(self, arguments: Sequence[str], env: Mapping[str, str]) -> git.Git.AutoInterrupt:
        """Start one git command with pipes; the process ends when the result is dropped."""
        return self.execute(["git", *arguments], istream=subprocess.PIPE, as_process=True, env=env,
                            start_new_session=True)  # ctrl-c must not tear a commit in half


class GuardedRepo(git.Repo):
    """A repository that is opened with its own configuration only."""

    GitCommandWrapperType = GuardedGit
    config_level: Any = ("repository",)
