"""A kept commit's message: what it changes and why it is faster, in few words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from engine.journal.records import Candidate
from engine.judge.judge import describe_rows, describe_speedup
from engine.repository.patches.patch import FilePatch, Patch
from harness.errors import InputError
from harness.formats.text import plain
from harness.search.space import knobs
from harness.search.space.knobs import Value
from harness.verdict import Verdict

SUBJECT = 60
NAMED = 4
"""Files, knobs or functions that are named at most."""
Read = Callable[[str], str]
"""Returns a file's text in a commit or tree; raises InputError if it has none."""

_HUNK = re.compile(r"@@ [^@]* @@ ?(.*)")
_PYTHON = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+(\w+)")
_C = re.compile(r"[A-Za-z_][\w\s*&:<>,\[\]()\"]*?\b(?!if|for|while|switch|return)(\w+)\s*\([^;]*$")


def message(op: str, candidate: Candidate, verdict: Verdict, changed: str) -> str:
    """Return the message of a candidate's commit."""
    gain = "" if verdict.speedup is None else f" ({verdict.speedup:.2f}x)"
    subject = f"{op}: {candidate.hypothesis}"
    subject = subject if len(subject) <= SUBJECT else subject[:SUBJECT - 1].rstrip() + "…"
    return "\n".join([
        f"{subject}{gain}", "",
        f"Why it is faster: {candidate.hypothesis}.",
        f"What it changes: {changed}.",
        f"It attacks: {candidate.bottleneck or 'no single bottleneck'}.", "",
        f"Measured: {describe_speedup(verdict)} on {verdict.device}",
        f"Classes: {describe_rows(verdict.rows)}",
        f"Candidate: {candidate.id}, slot {candidate.slot}, round {candidate.round}"])


def changed(patch: Patch, language: str, before: Read, after: Read) -> str:
    """Name the knobs that a patch turns, `TILE 16 -> 64`, and the functions that it touches."""
    said = [_of_file(file, language, before, after) for file in patch.files]
    return plain(_listed(said, "; "), 400)


def functions(file: FilePatch) -> tuple[str, ...]:
    """Return the functions in which a file's lines are changed, in their order."""
    pattern = _PYTHON if file.path.endswith((".py", ".pyi")) else _C
    return tuple(dict.fromkeys(_touched(file.text, pattern)))


def _of_file(file: FilePatch, language: str, before: Read, after: Read) -> str:
    if file.is_new or file.is_deleted or file.binary:
        return f"{'removes' if file.is_deleted else 'adds'} {file.path}"
    turned, only = _turned(file, language, before, after)
    touched = [] if only else list(functions(file))
    words = [*turned, *([_listed([f"{name}()" for name in touched])] if touched else [])]
    size = "" if only else f" (+{file.added} -{file.removed})"
    return f"{_listed(words)}{' in' if words else ''} {file.path}{size}".strip()


def _turned(file: FilePatch, language: str, before: Read, after: Read) -> tuple[list[str], bool]:
    """Return the knobs whose value is another one, and whether nothing else is changed."""
    try:
        old, new = before(file.old_path), after(file.new_path)
        then, now = (knobs.current(knobs.find(text, language=language)) for text in (old, new))
        turned: Mapping[str, Value] = {name: value for name, value in now.items()
                                       if then.get(name, value) != value}
        only = bool(turned) and knobs.apply(old, turned, language=language) == new
    except InputError:
        return [], False
    return [f"{name} {then[name]} -> {value}" for name, value in turned.items()], only


def _touched(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    inside = ""
    for line in text.split("\n"):
        if hunk := _HUNK.match(line):
            inside = _named(hunk[1], pattern)
        elif line[:1] in (" ", "-", "+") and not line.startswith(("--- ", "+++ ")):
            inside = _named(line[1:], pattern) or inside
            if inside and line[0] != " " and line[1:].strip():
                yield inside


def _named(line: str, pattern: re.Pattern[str]) -> str:
    found = pattern.match(line)
    return found[1] if found else ""


def _listed(words: list[str], between: str = ", ") -> str:
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return f"{between.join(words[:NAMED])}{more}"
