"""A file that is replaced is the old one or the new one, never half of one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from harness.formats.file_copy import copy_sources, replace_file


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


def test_pipe_in_a_project_is_left_out_of_its_copy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (project / "sub" / "kernel.cu").write_text("x")
    (project / "link.cu").symlink_to("sub/kernel.cu")
    os.mkfifo(project / "sub" / "pipe")
    copy_sources(project, tmp_path / "copy", skipped=("*.txt",))
    assert sorted(path.name for path in (tmp_path / "copy").rglob("*")) == [
        "kernel.cu", "link.cu", "sub"]
