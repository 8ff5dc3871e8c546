"""Workspaces that older versions of kopt recorded; see tests/data/journal/README.md."""

from __future__ import annotations

import sqlite3
import tarfile
from pathlib import Path

from tests.support.paths import DATA

RECORDED_IN = "/tmp/recorded"


def unpack(name: str, folder: Path) -> Path:
    """Unpack a recorded workspace and its project, replace recorded paths; return the workspace."""
    with tarfile.open(DATA / "journal" / name) as archive:
        archive.extractall(folder, filter="data")
    [manifest] = (folder / "w").glob("*/manifest.yaml")
    manifest.write_text(manifest.read_text().replace(RECORDED_IN, str(folder)))
    execute(folder / "w", "UPDATE campaigns SET path = replace(path, ?1, ?2),"
            " project = replace(project, ?1, ?2)", RECORDED_IN, str(folder))
    return folder / "w"


def execute(workspace: Path, statement: str, *values: str) -> None:
    connection = sqlite3.connect(workspace / "kopt.db")
    connection.execute(statement, values)
    connection.commit()
    connection.close()
