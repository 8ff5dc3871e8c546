"""The pages of knowledge/ that an outside agent may read."""

from __future__ import annotations

from pathlib import Path

import kopt_tui
from harness.errors import InputError
from harness.formats.text import plain

FOLDER = Path(kopt_tui.__file__).parent.parent / "knowledge"
SUFFIXES = (".md", ".yaml", ".in")


class KnowledgePages:
    """Lists and reads the pages of a folder; nothing outside it."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder.resolve()

    def names(self) -> list[str]:
        """Return the pages' paths inside the folder."""
        return sorted(path.relative_to(self._folder).as_posix()
                      for path in self._folder.rglob("*")
                      if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink())

    def read(self, name: str) -> str:
        """Return a page. Raises InputError for a name that `names` does not return."""
        if name not in self.names():
            raise InputError(f"there is no page {plain(name, 200)!r}",
                             fix="read_knowledge without a name lists all pages")
        return (self._folder / name).read_text()
