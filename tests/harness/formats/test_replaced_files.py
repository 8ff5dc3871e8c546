"""A file that is replaced is the old one or the new one, never half of one."""

from __future__ import annotations

import threading
from pathlib import Path

from harness.formats.file_copy import replace_file


def test_readers_never_see_a_partly_replaced_file(tmp_path: Path) -> None:
    path, contents = tmp_path / "manifest.yaml", (b"a" * (1 << 20), b"b" * (1 << 19))
    replace_file(path, contents[0])
    read: set[bytes] = set()
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            read.add(path.read_bytes())

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(20):
        replace_file(path, contents[number % 2])
    ended.set()
    looking.join()
    assert read <= set(contents)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
