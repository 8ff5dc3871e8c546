"""The transcript of an agent's slot: one JSON line per message, command or note.

Its texts come from an agent: they are shown as data only. The file may grow while it is read, and
its last line may be incomplete.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal

import msgspec

from harness.formats.text import plain

TRANSCRIPT = "transcript.jsonl"
"""The file in the scratch folder of an agent that works for no campaign."""
LIMIT_BYTES = 8 << 20
TEXT_CHARS, COMMAND_CHARS = 16_000, 4_000
"""The longest text and command of one entry; of longer texts the start and the end are kept."""
CHUNK_BYTES = 1 << 20

Role = Literal["system", "user", "assistant", "tool", "note"]


class TranscriptEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One message, the command it asks for, or the output of one."""

    step: int
    at: float
    """Seconds since the epoch."""
    role: Role
    text: str
    command: str = ""
    exit_code: int | None = None
    cost_usd: float | None = None
    """The cost of the slot's work so far, None if unknown."""


class TranscriptWriter:
    """Appends entries to a file up to its limit; then a last entry says that it is full."""

    def __init__(self, path: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._limit = path, limit_bytes
        self._size = path.stat().st_size if path.exists() else 0
        self._is_full = False

    def add(self, entry: TranscriptEntry) -> None:
        """Append an entry, its texts plain and of limited length. Raises OSError."""
        if self._is_full:
            return
        line = _encode(entry)
        if self._size + len(line) > self._limit:
            self._is_full = True
            line = _encode(msgspec.structs.replace(
                entry, role="note", command="", exit_code=None,
                text=f"the transcript is full ({self._limit} bytes): later entries are left out"))
        with self._path.open("ab") as file:
            file.write(line)
        self._size += len(line)


class TranscriptReader:
    """Reads a transcript from an offset, which advances past each complete line."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path, self.offset = path, offset

    def read(self, limit_bytes: int = CHUNK_BYTES) -> list[TranscriptEntry]:
        """Return the next entries, at most `limit_bytes` of them; none if there is no such file.

        Lines that are no entries are left out. A file that has shrunk is read from its start.
        """
        data = self._bytes(limit_bytes)
        end = data.rfind(b"\n") + 1
        if not end and len(data) == limit_bytes:
            end = len(data)  # longer than any line of the writer: skip it part by part
        self.offset += end
        return [entry for line in data[:end].splitlines() if (entry := _decode(line))]

    def _bytes(self, limit_bytes: int) -> bytes:
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return b""
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return b""
            if status.st_size < self.offset:
                self.offset = 0
            file.seek(self.offset)
            return file.read(limit_bytes)


def _encode(entry: TranscriptEntry) -> bytes:
    return msgspec.json.encode(_plain(entry)) + b"\n"


def _decode(line: bytes) -> TranscriptEntry | None:
    try:
        return _plain(msgspec.json.decode(line, type=TranscriptEntry))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _plain(entry: TranscriptEntry) -> TranscriptEntry:
    text, command = (plain(part, len(part) + 1) for part in (entry.text, entry.command))
    return msgspec.structs.replace(entry, text=middle_cut(text, TEXT_CHARS),
                                   command=middle_cut(command, COMMAND_CHARS))


def middle_cut(text: str, limit: int) -> str:
    """Return a text; of one longer than `limit` characters the start and the end."""
    if len(text) <= limit:
        return text
    half = (limit - 40) // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
