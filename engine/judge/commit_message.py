"""A kept commit's message: what it changes, and which config classes became faster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.journal.records import Bottleneck, Candidate
from engine.judge.attribution import attribute
from engine.judge.judge import describe_rows, describe_speedup
from engine.repository.patches.patch import FilePatch, Patch
from harness.errors import InputError
from harness.formats import quantities
from harness.formats.quantities import listed
from harness.formats.text import plain
from harness.search.space import knobs
from harness.verdict import Value, Verdict

SUBJECT = 60
NAMED = 4
"""Most files, knobs or functions that a message names."""
Read = Callable[[str], str]
"""Returns the text of a file in a commit or tree; raises InputError if there is no such file."""

_HUNK = re.compile(r"@@ [^@]* @@ ?(.*)")
_PYTHON = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+(\w+)")
_C = re.compile(r"[A-Za-z_][\w\s*&:<>,\[\]()\"]*?\b(?!if|for|while|switch|return)(\w+)\s*\([^;]*$")


def message(op: str, candidate: Candidate, verdict: Verdict, changed: PatchWords,
            bottlenecks: Sequence[Bottleneck] = ()) -> str:
    """Return the message of a candidate's commit: what changed, and the measured gain.

    `bottlenecks` are those of the campaign.
    """
    gain = "" if verdict.speedup is None else f" ({quantities.speedup(verdict.speedup)})"
    subject = f"{op}: {changed.knobs or candidate.hypothesis}"
    subject = subject if len(subject) <= SUBJECT else subject[:SUBJECT - 1].rstrip() + "…"
    shown = attribute(candidate, verdict, bottlenecks)
    why = changed.text if changed.knobs or shown.missed else \
        f"{candidate.hypothesis}: {changed.text}"
    doubt = "; the class that it was written for did not gain" if shown.missed else ""
    return "\n".join([
        f"{subject}{gain}", "",
        f"Why it is faster: {why}.",
        f"Gained: {shown.evidence or 'no single class'}.",
        *([] if why.startswith(candidate.hypothesis) else
          [f"Hypothesis: {candidate.hypothesis}{doubt}."]),
        f"Aimed at: {shown.aim or 'no single bottleneck'}.", "",
        f"Measured: {describe_speedup(verdict)} on {verdict.device}",
        f"Classes: {describe_rows(verdict.rows)}",
        f"Candidate: {candidate.id}, slot {candidate.slot}, round {candidate.round}"])


@dataclass(frozen=True)
class PatchWords:
    """What a patch changes; `knobs` is `TILE 16 -> 64` if it sets knobs and does nothing else."""

    text: str
    knobs: str = ""


def changed(patch: Patch, language: str, before: Read, after: Read) -> PatchWords:
    """Return in words the knobs that a patch sets and the functions that it changes."""
    files = [_of_file(file, language, before, after) for file in patch.files]
    knobs = [change.knobs for change in files]
    return PatchWords(plain(listed([change.text for change in files], NAMED, "; "), 400),
                      plain(", ".join(knobs), 400) if all(knobs) else "")


def functions(file: FilePatch) -> tuple[str, ...]:
    """Return the functions whose lines a file's patch changes, in their order."""
    pattern = _PYTHON if file.path.endswith((".py", ".pyi")) else _C
    return tuple(dict.fromkeys(_changed_functions(file.text, pattern)))


def _of_file(file: FilePatch, language: str, before: Read, after: Read) -> PatchWords:
    if file.is_new or file.is_deleted or file.binary:
        return PatchWords(f"{'removes' if file.is_deleted else 'adds'} {file.path}")
    knob_changes, knobs_only = _knob_changes(file, language, before, after)
    names = [] if knobs_only else [f"{name}()" for name in functions(file)]
    parts = [*knob_changes, *([listed(names, NAMED)] if names else [])]
    size = "" if knobs_only else f" (+{file.added} -{file.removed})"
    text = f"{listed(parts, NAMED)}{' in' if parts else ''} {file.path}{size}".strip()
    return PatchWords(text, listed(knob_changes, NAMED) if knobs_only else "")


def _knob_changes(file: FilePatch, language: str, before: Read,
                  after: Read) -> tuple[list[str], bool]:
    """Return the knobs whose value changes, and whether nothing else does."""
    try:
        old, new = before(file.old_path), after(file.new_path)
        old_values, new_values = (
            knobs.current(knobs.find(text, language=language)) for text in (old, new))
        changes: Mapping[str, Value] = {name: value for name, value in new_values.items()
                                        if old_values.get(name, value) != value}
        knobs_only = bool(changes) and knobs.apply(old, changes, language=language) == new
    except InputError:
        return [], False
    return [f"{name} {old_values[name]} -> {value}" for name, value in changes.items()], knobs_only


def _changed_functions(diff: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield the function of each changed line, by hunk headers and the definitions in the diff."""
    function = ""
    for line in diff.split("\n"):
        if hunk := _HUNK.match(line):
            function = _defined(hunk[1], pattern)
        elif line[:1] in (" ", "-", "+") and not line.startswith(("--- ", "+++ ")):
            function = _defined(line[1:], pattern) or function
            if function and line[0] != " " and line[1:].strip():
                yield function


def _defined(line: str, pattern: re.Pattern[str]) -> str:
    """Return the function that a line defines, "" if none."""
    match = pattern.match(line)
    return match[1] if match else ""
