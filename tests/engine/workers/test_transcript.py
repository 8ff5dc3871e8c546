"""A slot's transcript stays bounded and plain, and can be read while it is written."""

from __future__ import annotations

import os
from pathlib import Path

from engine.workers.transcript import (
    TEXT_CHARS,
    TRANSCRIPT,
    TranscriptEntry,
    TranscriptReader,
    TranscriptWriter,
)


def _entry(text: str, step: int = 1) -> TranscriptEntry:
    return TranscriptEntry(step=step, at=1.5, role="assistant", text=text)


def test_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
    entry = TranscriptEntry(step=2, at=1.5, role="tool", text="ok\nTab\t✓", command="make",
                            exit_code=1, cost_usd=0.25)
    writer = TranscriptWriter(tmp_path / TRANSCRIPT)
    writer.add(entry)
    writer.add(_entry("next"))
    assert TranscriptReader(tmp_path / TRANSCRIPT).read() == [entry, _entry("next")]


def test_reader_goes_on_from_its_offset(tmp_path: Path) -> None:
    path = tmp_path / TRANSCRIPT
    reader, writer = TranscriptReader(path), TranscriptWriter(path)
    assert reader.read() == []
    writer.add(_entry("one"))
    assert [entry.text for entry in reader.read()] == ["one"]
    assert reader.read() == []
    writer.add(_entry("two"))
    assert [entry.text for entry in TranscriptReader(path, reader.offset).read()] == ["two"]


def test_reader_waits_for_the_rest_of_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / TRANSCRIPT
    TranscriptWriter(path).add(_entry("whole ✓"))
    line = path.read_bytes()
    reader = TranscriptReader(path)
    for cut in range(1, len(line)):
        path.write_bytes(line + line[:cut])
        assert len(reader.read()) == (cut == 1), f"torn after {cut} bytes"
    path.write_bytes(line + line)
    assert [entry.text for entry in reader.read()] == ["whole ✓"]


def test_reader_leaves_out_lines_that_are_no_entries(tmp_path: Path) -> None:
    path = tmp_path / TRANSCRIPT
    writer = TranscriptWriter(path)
    writer.add(_entry("good"))
    with path.open("ab") as file:
        file.write(b'{"step": 1}\nnonsense \xff\n[]\n')
    writer.add(_entry("still good"))
    assert [entry.text for entry in TranscriptReader(path).read()] == ["good", "still good"]


def test_reader_skips_a_line_longer_than_one_read(tmp_path: Path) -> None:
    path = tmp_path / TRANSCRIPT
    path.write_bytes(b"x" * 5000 + b"\n")
    TranscriptWriter(path).add(_entry("after"))
    reader = TranscriptReader(path)
    found = [entry.text for _ in range(8) for entry in reader.read(1000)]
    assert found == ["after"]


def test_reader_begins_anew_where_the_file_was_replaced_by_a_shorter_one(tmp_path: Path) -> None:
    path = tmp_path / TRANSCRIPT
    TranscriptWriter(path).add(_entry("a long first entry"))
    reader = TranscriptReader(path)
    reader.read()
    path.unlink()
    TranscriptWriter(path).add(_entry("new"))
    assert [entry.text for entry in reader.read()] == ["new"]


def test_reader_follows_no_link_and_waits_for_no_pipe(tmp_path: Path) -> None:
    TranscriptWriter(tmp_path / "other").add(_entry("elsewhere"))
    (tmp_path / "link").symlink_to(tmp_path / "other")
    os.mkfifo(tmp_path / "pipe")
    assert [TranscriptReader(tmp_path / name).read() for name in ("link", "pipe")] == [[], []]


def test_escape_sequences_are_removed_when_written_and_when_read(tmp_path: Path) -> None:
    path = tmp_path / TRANSCRIPT
    TranscriptWriter(path).add(TranscriptEntry(
        step=1, at=0.0, role="tool", text="\x1b[31mred\x1b]0;title\x07", command="ls\x1b[2J"))
    assert b"u001b" not in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(b"red", rb"\u001b[31mred"))
    [entry] = TranscriptReader(path).read()
    assert (entry.text, entry.command) == ("red", "ls")


def test_long_text_keeps_its_start_and_end(tmp_path: Path) -> None:
    TranscriptWriter(tmp_path / TRANSCRIPT).add(_entry("first" + "x" * 100_000 + "last"))
    [entry] = TranscriptReader(tmp_path / TRANSCRIPT).read()
    assert len(entry.text) <= TEXT_CHARS
    assert entry.text.startswith("first") and entry.text.endswith("last")


def test_full_transcript_says_so_once_and_grows_no_more(tmp_path: Path) -> None:
    path = tmp_path / TRANSCRIPT
    writer = TranscriptWriter(path, limit_bytes=2000)
    for step in range(100):
        writer.add(_entry("x" * 300, step))
    entries = TranscriptReader(path).read()
    assert [entry.role for entry in entries].count("note") == 1
    assert entries[-1].text.startswith("the transcript is full")
    assert path.stat().st_size < 2300
