"""Data folders: kopt's own, the user's and the project's; later ones override earlier ones."""

from __future__ import annotations

import os
from pathlib import Path


def user_folder(name: str) -> Path:
    """Return the user's folder for a kind of data: `subagents` or `knowledge`."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return config / "kopt" / name


def overriding(built_in: Path, project: Path | None) -> tuple[Path, ...]:
    """Return kopt's folder, the user's and the project's of the same name, in reading order.

    An entry of a later folder replaces one of the same name in an earlier folder.
    """
    of_project = [project / built_in.name] if project else []
    return tuple(dict.fromkeys(
        path.resolve() for path in (built_in, user_folder(built_in.name), *of_project)))
