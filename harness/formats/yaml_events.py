"""Build plain data from the events of a YAML parser, and write YAML; imported when first used."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any

import yaml

from harness.errors import InputError
from harness.formats.yaml_values import INT, MAX_DEPTH, Key, scalar

_FASTEST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BEYOND = re.compile(r"\\U(?!0010|000[0-9a-fA-F])[0-9a-fA-F]{8}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def build(text: str, where: str) -> tuple[Any, dict[Key, int]]:
    """Return the value of the document and the line of each of its parts; raises InputError.

    libyaml takes a tenth of the time; a text that it refuses is parsed again in Python, whose
    messages do not depend on the installation.
    """
    with contextlib.suppress(yaml.YAMLError, ValueError):
        return _build(yaml.parse(text, Loader=_FASTEST), where)
    try:
        return _build(yaml.parse(text, Loader=yaml.SafeLoader), where)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        what = f"is not plain text (character U+{code:04X})"
        raise InputError(what, where=f"{where}:{line}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = str(error.problem or error.context)
        raise InputError(f"not YAML: {problem}", where=f"{where}:{line}",
                         fix=_hint(problem)) from error
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise InputError("is not plain text (a lone surrogate)", where=f"{where}:{line}") from error
    except (ValueError, OverflowError) as error:  # chr() raises these for an escape
        beyond = _BEYOND.search(text)
        line = text.count("\n", 0, beyond.start() if beyond else 0) + 1
        raise InputError("not YAML: an escape beyond U+10FFFF", where=f"{where}:{line}") from error


def _build(events: Iterator[yaml.Event], where: str) -> tuple[Any, dict[Key, int]]:
    builder = _Builder(events, where)
    return builder.document(), builder.lines


class _Builder:
    """Builds the value of one document from parse events, with the line of every part."""

    def __init__(self, events: Iterator[yaml.Event], where: str) -> None:
        self.events, self.where = events, where
        self.lines: dict[Key, int] = {}

    def document(self) -> Any:
        """Return the top-level value."""
        top, documents = None, 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self.error("a second document starts here, only one is allowed", event)
            elif isinstance(event, yaml.NodeEvent):
                top = self.value(event, ())
        if not documents:
            raise InputError("is empty", where=self.where)
        return top

    def value(self, event: yaml.Event, at: Key) -> Any:
        """Return the value that begins with an event, at a place in the document."""
        self.refuse_alias_and_tag(event)
        if isinstance(event, yaml.ScalarEvent):
            return self.scalar(event)
        if len(at) >= MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", event)
        if isinstance(event, yaml.MappingStartEvent):
            mapping: dict[str, Any] = {}
            while not isinstance(event := next(self.events), yaml.MappingEndEvent):
                key = self.key(event, at)
                mapping[key] = self.value(next(self.events), (*at, key))
            return mapping
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            place = (*at, len(items))
            items.append(self.value(event, place))
            self.lines[place] = _line(event)
        return items

    def scalar(self, event: yaml.ScalarEvent) -> Any:
        is_plain = event.implicit[0]
        is_long = len(event.value) > 30 and is_plain and INT.fullmatch(event.value)
        value = scalar(event.value) if is_plain and not is_long else event.value
        if is_long or (isinstance(value, int) and abs(value) >= 2**63) \
                or (isinstance(value, float) and not math.isfinite(value)):
            raise self.error("the number is too large", event)
        if isinstance(value, str) and "\0" in value:
            raise self.error("the text holds a NUL character", event)
        if isinstance(value, str) and _SURROGATE.search(value):
            raise self.error("the text holds a lone surrogate", event)
        return value

    def key(self, event: yaml.Event, at: Key) -> str:
        """Return a key of the mapping at `at`, and record its line."""
        self.refuse_alias_and_tag(event)
        if not isinstance(event, yaml.ScalarEvent):
            raise self.error("a key must be plain text", event)
        if _SURROGATE.search(event.value):
            raise self.error("a key holds a lone surrogate", event)
        key = str(event.value)
        if first := self.lines.get((*at, key)):
            raise self.error(f"key {key!r} is already given in line {first}", event)
        self.lines[(*at, key)] = _line(event)
        return key

    def refuse_alias_and_tag(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise self.error(f"the alias *{event.anchor} is not allowed: write the value out",
                             event)
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise self.error(f"the tag {tag} is not allowed", event)

    def error(self, what: str, event: yaml.Event) -> InputError:
        return InputError(what, where=f"{self.where}:{_line(event)}")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _hint(problem: str) -> str:
    if r"'\t'" in problem:
        return "indent with spaces, not tabs"
    if "cannot start any token" in problem or "indentation indicators" in problem:
        return "put the text in quotes"
    return ""


class _Dumper(yaml.SafeDumper):
    """Quotes every text that `scalar` would not read back as text; the top level is a block."""

    def represent(self, data: object) -> None:
        node = self.represent_data(data)
        if isinstance(node, yaml.CollectionNode):
            node.flow_style = False
        self.serialize(node)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None if isinstance(scalar(text), str) and text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump(value: dict[str, Any]) -> str:
    """Return YAML text that `parse` reads back as the same value."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=96,
                     default_flow_style=None)
    return str(text)
