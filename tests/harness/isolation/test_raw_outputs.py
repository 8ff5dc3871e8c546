"""What the processes of a verdict print is kept as data, within limits."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness.isolation import guard, raw_outputs


def kept(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_guarded_process_leaves_its_output_and_a_line_in_runs_tsv(tmp_path: Path) -> None:
    program = "import sys; print('a\\x1b[31m'); print('b', file=sys.stderr); sys.exit(3)"
    with raw_outputs.recording(str(tmp_path / "out")):
        guard.run([sys.executable, "-c", program], cwd=tmp_path, name="a side/../x")
        guard.run(["true"], cwd=tmp_path)
    guard.run([sys.executable, "-c", program], cwd=tmp_path)
    files = kept(tmp_path / "out")
    assert files.pop("001-a-side-..-x.stdout") == b"a\x1b[31m\n"
    assert files.pop("001-a-side-..-x.stderr") == b"b\n"
    runs = [line.split("\t") for line in files.pop("runs.tsv").decode().splitlines()]
    assert [run[:3] for run in runs] == [["001", "a side/../x", "exited with 3"],
                                         ["002", "true", "exited with 0"]]
    assert not files and "\x1b" not in runs[0][4]


def test_long_output_keeps_its_start_and_end_and_the_newest_files_stay(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_outputs, "FILE_BYTES", 100)
    monkeypatch.setattr(raw_outputs, "MOST_BYTES", 400)
    with raw_outputs.recording(str(tmp_path)):
        for number in range(6):
            raw_outputs.keep("log", b"<" + b"x" * 1000 + b"%d>" % number)
    files = kept(tmp_path)
    assert sum(map(len, files.values())) <= 400 and "006-log" in files and "001-log" not in files
    assert files["006-log"].startswith(b"<x") and files["006-log"].endswith(b"x5>")
    assert b"903 bytes left out" in files["006-log"]


def test_a_link_or_pipe_that_a_candidate_leaves_is_not_read(tmp_path: Path) -> None:

    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link.csv").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe.csv")
    with raw_outputs.recording(str(tmp_path / "out")):
        for name in ("link", "pipe", "missing"):
            raw_outputs.keep_file(f"{name}.csv", tmp_path / f"{name}.csv")
    assert not kept(tmp_path / "out")
