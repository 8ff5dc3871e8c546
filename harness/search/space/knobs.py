"""Read the knobs that a kernel's source declares, and write configurations back into it.

A knob is declared in the source itself, in one of three ways:

- a comment on a `#define` or a constant: `#define TILE 32  // kopt: knob TILE in [16, 32]`
- a `triton.autotune` list of `triton.Config`s: one knob whose choices are the configs
- `BLOCK: tl.constexpr = 64  # kopt: knob BLOCK in [64, 128]`

`# kopt: knob STAGES in [2, 3] reserved: not used yet` documents a knob with a fixed value: no
search changes it, and a configuration that sets it to anything else is refused.

`# kopt: require TILE_M * TILE_N <= 4096`, on its own line or at the end of one, states what every
configuration must fulfil; a configuration that does not is never proposed, built or run.

`# kopt: start TILE_M=64 num_warps=8`, on its own line, states what a search tries first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from harness.errors import InputError
from harness.formats.text import plain
from harness.search.space import constraints, triton_autotune
from harness.search.space.constraints import Requirement
from harness.verdict import Value

MAX_CHOICES = 256
MAX_WORD = 64
MAX_NOTE = 200
MOST_SHOWN = 12
_COMMENT = re.compile(r"(?://|#|/\*)\s*kopt:\s*knob\b(?P<rest>.*)$")
_REQUIRE = re.compile(r"(?://|#|/\*)\s*kopt:\s*require[sd]?\b(?P<rest>.*)$")
_START = re.compile(r"(?://|#|/\*)\s*kopt:\s*start\b(?P<rest>.*)$")
_PAIR = re.compile(r"(?<!\S)(\w+)=([\w.+-]+)")
_DECLARATION = re.compile(r"^\s*(?P<name>\w+)\s+in\s+\[(?P<choices>[^\]]*)\]"
                          r"(?P<reserved>\s*reserved\b)?(?P<note>[^*]*)")
_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", re.ASCII)
_AFTER = r"(?=\s*(?:[,;:)}\]]|//|/\*|\#|$))"


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One tunable value: its line (1-based), its current value and its choices."""

    name: str
    line: int
    value: Value
    choices: tuple[Value, ...]
    note: str = ""
    reserved: bool = False

    def choice(self, value: object) -> Value | None:
        """Return the choice equal to a value, None if there is none; 1 means the choice 1.0."""
        for choice in self.choices:
            if value == choice and (type(value) is type(choice)
                                    or (type(value) is int and type(choice) is float)):
                return choice
        return None

    def fault(self, value: object) -> str:
        """Return why the knob cannot be set to a value, "" if it can."""
        choice = self.choice(value)
        if choice is None:
            shown = ", ".join(plain(str(each), MAX_WORD) for each in self.choices[:MOST_SHOWN])
            more = ", …" if len(self.choices) > MOST_SHOWN else ""
            return (f"knob {self.name!r} cannot be {_shown(value)} "
                    f"({type(value).__name__}), one of {shown}{more}")
        if self.reserved and choice != self.value:
            return f"knob {self.name!r} is reserved: it stays {plain(str(self.value), MAX_WORD)}"
        return ""


@dataclass(frozen=True, kw_only=True)
class CheckedConfig:
    """A configuration compared with the knobs: what can be set, unknown names, and faults."""

    config: dict[str, Value]
    dropped: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def refusal(self) -> str:
        """Why the configuration is refused as a whole, "" if it can be set."""
        return "; ".join((*self.faults, *(f"no knob {name!r}" for name in self.dropped)))


def _shown(value: object) -> str:
    try:
        return plain(repr(value), MAX_WORD)
    except (ValueError, RecursionError):
        return "a value that cannot be printed"


def check(knobs: Sequence[Knob], config: Mapping[str, object],
          required: Sequence[Requirement] = ()) -> CheckedConfig:
    """Compare a configuration with knobs and requirements; unnamed knobs keep their value."""
    known = {knob.name: knob for knob in knobs}
    faults = [known[name].fault(value) for name, value in config.items() if name in known]
    allowed = {name: choice for name, value in config.items()
               if name in known and (choice := known[name].choice(value)) is not None}
    if not any(faults):
        whole = current(knobs) | allowed
        faults += [f"does not meet the requirement {requirement.text}" for requirement in required
                   if not requirement.met(whole)]
    return CheckedConfig(
        config=allowed, faults=tuple(filter(None, faults)),
        dropped=tuple(plain(str(name), MAX_WORD) for name in config if name not in known))


def find(source: str, *, language: str, where: str = "") -> tuple[Knob, ...]:
    """Return the knobs that a source declares. Raises InputError for an invalid declaration."""
    knobs = [_parse(line, comment, number, where)
             for number, line in enumerate(triton_autotune.lines_of(source), 1)
             if (comment := _COMMENT.search(line))]
    if language == "triton":
        knobs += [Knob(name=configs.knob, line=configs.line, value=configs.texts[0],
                       choices=configs.texts, note="autotune list")
                  for configs in triton_autotune.lists(source, MAX_CHOICES)]
    names = [knob.name for knob in knobs]
    for knob in knobs:
        if names.count(knob.name) > 1:
            raise InputError(f"knob {knob.name!r} is declared twice", where=f"{where}:{knob.line}")
    return tuple(knobs)


def requirements(source: str, knobs: Sequence[Knob], where: str = "") -> tuple[Requirement, ...]:
    """Return a source's requirements. Raises InputError if one is invalid or the source breaks it.
    """
    required = []
    for number, line in enumerate(triton_autotune.lines_of(source), 1):
        if comment := _REQUIRE.search(line.rstrip()):
            place = f"{where}:{number}" if where else f"line {number}"
            requirement = constraints.parse(comment["rest"].strip().removesuffix("*/"),
                                            [knob.name for knob in knobs], place)
            if not requirement.met(current(knobs)):
                raise InputError("the source itself does not meet the requirement "
                                 f"{plain(requirement.text, MAX_WORD)}", where=place)
            required.append(requirement)
    return tuple(required)


def starts(source: str) -> tuple[dict[str, Value], ...]:
    """Return the configurations that a source names as starting points, as they are written."""
    return tuple({name: _value(word) for name, word in _PAIR.findall(comment["rest"])}
                 for line in triton_autotune.lines_of(source)
                 if (comment := _START.search(line.rstrip())))


def apply(source: str, config: Mapping[str, Value], *, language: str) -> str:
    """Return the source with the named knobs set. Raises InputError for a value not allowed."""
    knobs = {knob.name: knob for knob in find(source, language=language)}
    lines = triton_autotune.lines_of(source)
    for name, value in config.items():
        if name not in knobs:
            raise InputError(f"no knob {name!r}", fix=f"one of {', '.join(knobs) or 'none'}")
        knob = knobs[name]
        if fault := knob.fault(value):
            raise InputError(fault)
        _assign(lines, knob, _value_text(knob.choices[knob.choices.index(value)]))
    text = "".join(lines)
    for name, value in config.items():
        if name.endswith(".config"):
            text = triton_autotune.pinned(text, name, str(value))
    return text


def read(path: Path) -> str:
    """Return a source as text, with its line ends unchanged. Raises InputError."""
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise InputError(f"cannot read the source: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("the source is not UTF-8 text", where=str(path)) from None


def current(knobs: Sequence[Knob]) -> dict[str, Value]:
    """Return the configuration that the source has now."""
    return {knob.name: knob.value for knob in knobs}


def config_words(config: Mapping[str, Value]) -> str:
    """Return a configuration for people: `TILE=32, WARPS=4`."""
    return ", ".join(f"{name}={value}" for name, value in config.items())


def identity(op: str, source: str, *, language: str) -> str:
    """Return a kernel's short name, the same for all values of its knobs. Raises as `find` does."""
    knobs = find(source, language=language)
    lines = triton_autotune.lines_of(source)
    for knob in knobs:
        _assign(lines, knob, "?")
    content = repr((op, language, [(k.name, k.choices, k.reserved) for k in knobs],
                    "".join(lines)))
    return "k" + hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:11]


def _assign(lines: list[str], knob: Knob, text: str) -> None:
    """Replace a knob's value in the line that sets it; do nothing for an autotune list."""
    if not knob.name.endswith(".config"):
        line = lines[knob.line - 1]
        match = _assignment_pattern(knob.name).search(line)
        assert match is not None  # find() has just seen it
        begin, end = match.span("value")
        lines[knob.line - 1] = f"{line[:begin]}{text}{line[end:]}"


def _assignment_pattern(name: str) -> re.Pattern[str]:
    head = rf"#\s*define\s+{name}\s+|\b{name}\b(?:\s*:\s*[\w.]+)?\s*=\s*"
    return re.compile(rf"(?P<head>{head})(?P<value>[+-]?[\w.]+){_AFTER}")


def _parse(line: str, comment: re.Match[str], number: int, where: str) -> Knob:
    place = f"{where}:{number}" if where else f"line {number}"
    declaration = _DECLARATION.match(comment["rest"])
    if declaration is None:
        raise InputError("cannot read the knob", where=place,
                         fix="write: kopt: knob NAME in [1, 2, 4]")
    name = declaration["name"]
    words = [word.strip() for word in declaration["choices"].split(",") if word.strip()]
    if not words:
        raise InputError(f"knob {name!r} has no choices", where=place)
    if len(words) > MAX_CHOICES:
        raise InputError(f"knob {name!r} has {len(words)} choices, at most {MAX_CHOICES}",
                         where=place)
    bad = [word for word in words if len(word) > MAX_WORD
           or not (_NUMBER.fullmatch(word) or word.isidentifier())]
    if bad:
        raise InputError(f"knob {name!r}: {bad[0][:MAX_WORD]!r} is neither a number nor a name",
                         where=place)
    choices = tuple(dict.fromkeys(_value(word) for word in words))
    assigned = _assignment_pattern(name).search(line[: comment.start()])
    if assigned is None:
        raise InputError(f"knob {name!r} is not set on its own line", where=place,
                         fix=f"#define {name} VALUE, or {name} = VALUE")
    value = _value(assigned["value"])
    if value not in choices:
        raise InputError(f"knob {name!r} is {str(value)[:MAX_WORD]}, which is not among its "
                         "choices", where=place)
    return Knob(name=name, line=number, value=value, choices=choices,
                note=plain(declaration["note"].strip(" :-—"), MAX_NOTE),
                reserved=declaration["reserved"] is not None)


def _value(word: str) -> Value:
    if len(word) > MAX_WORD or not _NUMBER.fullmatch(word):
        return word
    return float(word) if "." in word else int(word)


def _value_text(value: Value) -> str:
    """Write a value in the form of a declaration, never with an exponent."""
    if not isinstance(value, float):
        return str(value)
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"
