"""The thread that reads a transcript while a screen shows it, and finds a text in it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.workers.transcript import LIMIT_BYTES, TranscriptEntry, TranscriptReader
from kopt_tui.snapshot.feed import ReaderThread
from kopt_tui.snapshot.harmless import harmless_lines
from kopt_tui.snapshot.snapshot import AttemptRef

POLL_S = 0.5
"""At most two repaints a second while the transcript grows."""
PART_S = 0.2
"""Seconds of reading after which the entries are posted, before the rest is read."""
CHUNK_BYTES = 256 << 10
MOST_BYTES = 2 * LIMIT_BYTES
"""Later bytes of a file are not read: kopt writes no transcript of this size."""
LOG_LINES = 200
"""Lines of a log that are shown as one entry."""


class TranscriptPart(msgspec.Struct, frozen=True, kw_only=True):
    """What was added to a transcript since the last part."""

    attempt: AttemptRef
    newest: int
    """The number of the newest attempt of its slot in its round."""
    first: int
    """The index of the first of these entries; earlier ones stay."""
    entries: tuple[TranscriptEntry, ...]
    query: str
    hits: tuple[int, ...]
    """The indexes of all entries in which the query occurs."""
    note: str
    """Why there are no entries, or no more; "" if there is nothing to say."""


def searched(entry: TranscriptEntry) -> str:
    """Return the searched text of an entry; an output's command is part of another entry."""
    return entry.text if entry.role == "tool" else f"{entry.command}\n{entry.text}"


class TranscriptFeed(ReaderThread):
    """Posts the entries of one attempt, and from then on what is appended.

    A worker without a transcript has a log once it has ended, which is posted as entries without a
    time. `post` is called on this thread and must return at once.
    """

    def __init__(self, folder: Path, attempt: AttemptRef,
                 post: Callable[[TranscriptPart], object]) -> None:
        super().__init__("transcript-feed")
        self._path = folder
        self._post = post
        self._attempt, self._query = attempt, ""
        self._steps = deque[int]()
        self._watched.set()
        self._reader: TranscriptReader | None = None
        self._entries: list[TranscriptEntry] = []
        self._hits: list[int] = []
        self._searched = ""
        self._posted: TranscriptPart | None = None

    def search(self, query: str) -> None:
        """Find a text from now on; "" ends that."""
        self._query = query
        self._wake.set()

    def go(self, step: int) -> None:
        """Read the slot's next attempt instead, or the one before; also those of other rounds."""
        self._steps.append(step)
        self._wake.set()

    def run(self) -> None:
        from engine.campaign.folder import Folder  # loads what the first rows need not wait for

        self._folder = Folder(self._path)
        while not self._ended.is_set():
            note = ""
            try:
                self._choose()
                note = self._read()
            except OSError as error:
                note = f"the transcript cannot be read: {error.strerror or error}"
            self._find()
            self._publish(note)
            self._wake.wait(POLL_S)
            self._wake.clear()
            self._watched.wait()

    def _choose(self) -> None:
        """Open the requested attempt."""
        attempt = self._attempt
        if not attempt.number:
            newest = self._folder.last_attempt(attempt.round, attempt.slot)
            attempt = msgspec.structs.replace(attempt, number=max(1, newest))
        while self._steps:
            known = self._attempts()
            here = (attempt.round, attempt.number)
            at = (known.index(here) if here in known else len(known)) + self._steps.popleft()
            if known:
                n, number = known[max(0, min(at, len(known) - 1))]
                attempt = msgspec.structs.replace(attempt, round=n, number=number)
        if self._reader is None or attempt != self._attempt:
            self._attempt = attempt
            self._reader = TranscriptReader(self._folder.transcript(
                attempt.round, attempt.slot, attempt.number))
            self._forget()

    def _attempts(self) -> list[tuple[int, int]]:
        """Return the round and the number of each attempt of the slot that left a file."""
        rounds = sorted(int(name) for path in self._folder.rounds.glob("round-*")
                        if (name := path.name.removeprefix("round-")).isdecimal())
        slot = self._attempt.slot
        return [(n, number) for n in rounds
                for number in range(1, self._folder.last_attempt(n, slot) + 1)]

    def _forget(self) -> None:
        self._entries.clear()
        self._hits.clear()
        self._searched, self._posted = "", None

    def _read(self) -> str:
        """Read what is new; return a note about it."""
        assert self._reader is not None
        began = time.monotonic()
        while self._reader.offset < MOST_BYTES:
            before = self._reader.offset
            entries = self._reader.read(CHUNK_BYTES)
            if self._reader.offset < before:
                self._forget()  # another file
            self._entries += entries
            if self._reader.offset == before:
                break
            if time.monotonic() - began > PART_S:
                self._wake.set()
                return ""
        else:
            return f"later entries are not shown: the file is larger than {MOST_BYTES >> 20} MiB"
        return "" if self._entries else self._read_log()

    def _read_log(self) -> str:
        at = self._attempt
        path = self._folder.worker_log(at.round, at.slot, at.number)
        if not path.is_file():
            return f"attempt {at.number} of {at.slot} in round {at.round} has no transcript: " \
                "an agent writes one from its first step on, an agent's command line when it has " \
                "ended, other workers none"
        with path.open("rb") as file:
            lines = harmless_lines(file.read(MOST_BYTES)).split("\n")
        self._entries = [
            TranscriptEntry(step=0, at=0.0, role="note", text="\n".join(lines[at:at + LOG_LINES]))
            for at in range(0, len(lines), LOG_LINES)]
        return ""

    def _find(self) -> None:
        """Find a new query in all entries, the same query in new entries."""
        query, first = self._query.casefold(), 0
        if query == self._searched and self._posted is not None:
            first = len(self._posted.entries) + self._posted.first
        else:
            self._hits.clear()
        self._searched = query
        if query:
            self._hits += [index for index in range(first, len(self._entries))
                           if query in searched(self._entries[index]).casefold()]

    def _publish(self, note: str) -> None:
        """Post what differs from the last part."""
        before = self._posted
        first = 0 if before is None else before.first + len(before.entries)
        part = TranscriptPart(
            attempt=self._attempt, first=first, entries=tuple(self._entries[first:]), note=note,
            newest=self._folder.last_attempt(self._attempt.round, self._attempt.slot),
            query=self._searched, hits=tuple(self._hits))
        if before is None or part.entries or any(
                getattr(part, name) != getattr(before, name)
                for name in ("newest", "query", "hits", "note")):
            self._posted = part
            self._post(part)
