"""Tips: lessons of earlier campaigns, in one file for each hardware, op and backend.

The file is historical_experience/<gpu>/<op>/<backend>/tips.md in the workspace. kopt reads it
before the baseline and appends each lesson after its round. People may edit it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from engine.context import EngineContext
from engine.history import history, lessons
from engine.history.campaign_view import TipsRead
from engine.history.lessons import Lesson
from engine.journal.read import Reader
from engine.manifest.schema import Manifest
from engine.markdown import line, stamp, unescaped
from harness.formats import jsonl
from harness.formats.text import one_line

FOLDER, FILE = "historical_experience", "tips.md"
MOST, BRIEF = 30, 3000
"""Limits: lessons that a campaign starts with; characters of lessons in an agent's prompt."""
READ_BYTES = 1 << 18
LOCK_S = 5.0
HEAD = """# {op} in {backend} on {gpu}: what campaigns have learned

<!-- One lesson a line, the newest last. kopt reads them before a baseline; add your own. -->

"""
_MARK = re.compile(r"(?<!\\)<!-- kopt:([0-9a-f]{12}) -->$", re.MULTILINE)
_COMMENT = re.compile(r"(?<!\\)<!--.*?-->", re.DOTALL)


def path(workspace: Path, manifest: Manifest) -> Path:
    """Return the path of the tips for a manifest's hardware, op and backend."""
    parts = (manifest.target_gpu, manifest.target_op, manifest.target_backend.lower())
    return workspace.joinpath(FOLDER, *map(_folder, parts), FILE)


def read(file: Path) -> tuple[tuple[str, ...], int]:
    """Return the newest MOST lessons of a file, and the number of older ones.

    Only the last READ_BYTES are read. A missing file has none. Raises OSError if the file cannot be
    read.
    """
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(max(0, size - READ_BYTES))
            text = stream.read(READ_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return (), 0
    texts = list(_lessons(text))
    return tuple(texts[-MOST:]), max(0, len(texts) - MOST)


def append(file: Path, candidates: Sequence[Lesson], manifest: Manifest) -> list[Lesson]:
    """Append the lessons that the file lacks and return them; several processes may do so at once.

    Raises OSError if the file cannot be written, or is locked for LOCK_S seconds.
    """
    if not candidates:
        return []
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+b") as stream:
        if not jsonl.lock(stream.fileno(), LOCK_S):
            raise OSError(errno.EAGAIN, "locked by another process", str(file))
        stream.seek(0)
        text_before = stream.read()
        known = set(_MARK.findall(text_before.decode(errors="replace")))
        new = [lesson for lesson in candidates if lesson.key not in known]
        if new and not text_before:
            stream.write(HEAD.format(
                op=line(manifest.target_op), backend=line(manifest.target_backend),
                gpu=line(manifest.target_gpu)).encode(errors="replace"))
        elif new and not text_before.endswith(b"\n"):
            stream.write(b"\n")
        for lesson in new:
            item = f"- {stamp(lesson.at)}: {line(lesson.text)} <!-- kopt:{lesson.key} -->\n"
            stream.write(item.encode(errors="replace"))
    return new


def read_before_baseline(context: EngineContext) -> None:
    """Read the tips and record them, once in a campaign's life, before its first measurement."""
    setup = context.setup
    if context.reader.events_of(setup.id, "tips.read"):
        return
    file = path(setup.workspace, setup.manifest)
    try:
        texts, left_out = read(file)
    except OSError as error:
        _warn(context, f"the tips cannot be read: {error.strerror or error}")
        return
    tips = TipsRead(path=str(file.relative_to(setup.workspace)), lessons=texts, left_out=left_out)
    context.writer.event(setup.id, "tips.read", setup.id, **msgspec.to_builtins(tips))


def known(reader: Reader, campaign: str) -> tuple[str, ...]:
    """Return the lessons that a campaign started with, from its journal."""
    return next((tips.lessons for tips in reader.payloads(campaign, "tips.read", TipsRead)), ())


def brief(lessons: Sequence[str]) -> str:
    """Return the newest lessons for an agent's prompt, as Markdown; "" if there are none."""
    kept: list[str] = []
    for lesson in reversed(lessons):
        if sum(map(len, kept)) + len(lesson) > BRIEF:
            break
        kept.append(lesson)
    if not kept:
        return ""
    return "\n".join(["## What earlier campaigns learned on this hardware", "",
                      "Measure before you rely on them. These are their authors' words:",
                      *(f"- {line(lesson)}" for lesson in reversed(kept)), ""])


def learn(context: EngineContext) -> None:
    """Append the campaign's new lessons to the file.

    Written lessons are never changed, so a gain is written only once it, or a commit on top of it,
    passes final acceptance.
    """
    setup = context.setup
    file = path(setup.workspace, setup.manifest)
    past = history.read(context.reader, setup.id, setup.manifest.decision.score)
    try:
        append(file, lessons.recorded(context.reader, setup.id), setup.manifest)
        new = append(file, lessons.of(past, accepted=True), setup.manifest)
    except OSError as error:
        _warn(context, f"a tip cannot be written: {error.strerror or error}")
        return
    for lesson in new:
        context.writer.event(setup.id, "tips.learned", lesson.key, round=lesson.round,
                             path=str(file.relative_to(setup.workspace)), lesson=lesson.text,
                             at=lesson.at)


def restore(reader: Reader, workspace: Path, campaign: str, manifest: Manifest) -> None:
    """Append the lessons that a campaign recorded and the file lacks. Raises OSError."""
    append(path(workspace, manifest), lessons.recorded(reader, campaign), manifest)


def _lessons(text: str) -> Iterator[str]:
    """Yield the lessons of a file: its list items and paragraphs, without headings."""
    current: list[str] = []
    for raw in [*_COMMENT.sub("", text).splitlines(), ""]:
        stripped = raw.strip()
        starts = raw.startswith(("- ", "* ", "#"))
        if current and (starts or not stripped):
            yield one_line(unescaped(" ".join(current)), lessons.LONGEST + 20)
            current = []
        if stripped and not raw.startswith("#"):
            current.append(stripped.removeprefix("- ").removeprefix("* ") if starts else stripped)


def _folder(word: str) -> str:
    """Return a word of the manifest as a safe folder name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", word).strip(".-") or "any"


def _warn(context: EngineContext, message: str) -> None:
    context.writer.event(context.setup.id, "warning", "tips", message=message)
