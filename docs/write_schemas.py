"""Write docs/answers.json: the JSON schemas of what the verbs of `kopt` print with --json.

`make schemas` runs it after a field of an answer was added. A field that disappears or changes its
type breaks the programs of others: it needs a line in the CHANGELOG.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kopt_tui.cli.parser import ErrorReport, Parser, PrintSchema, answer_schema
from kopt_tui.main import MODULES, VERBS

FILE = Path(__file__).with_name("answers.json")


def answers() -> dict[str, tuple[type, ...]]:
    """Return the types of what each verb prints; of verbs with actions, those of each action."""
    found = {}
    for verb in VERBS:
        parser = Parser(prog=verb)
        parser.set_defaults(verb=verb)
        importlib.import_module(f"kopt_tui.commands.{MODULES.get(verb, verb)}").add(parser)
        found.update(_answers(parser))
    return found


def _answers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, tuple[type, ...]]]:
    for action in parser._actions:
        if isinstance(action, PrintSchema):
            yield parser.prog, action.const
        elif isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _answers(inner)


def document() -> dict[str, Any]:
    """Return the names of each verb's answers, and the schemas of all."""
    known = answers()
    types = dict.fromkeys((ErrorReport, *(one for own in known.values() for one in own)))
    return {
        "verbs": {name: [one.__name__ for one in own] for name, own in sorted(known.items())},
        "error": ErrorReport.__name__,
        "$defs": dict(sorted(answer_schema(*types)["$defs"].items()))}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each verb and each field that is gone, new or different."""
    return [f"{name}: {'gone' if new is None else 'new' if old is None else f'{old} is now {new}'}"
            for was, now in ((_facts(before), _facts(after)),) for name in sorted({*was, *now})
            for old, new in ((was.get(name), now.get(name)),) if old != new]


def _facts(known: Mapping[str, Any]) -> dict[str, str]:
    """Return each verb and each field of a document by its name."""
    facts = {f"kopt {verb}": ", ".join(own) for verb, own in known["verbs"].items()}
    for name, shape in known["$defs"].items():
        required = shape.get("required", ())
        facts |= {f"{name}.{field}": f"{json.dumps(kind)}{' always' * (field in required)}"
                  for field, kind in shape.get("properties", {}).items()}
    return facts


def text() -> str:
    """Return the file's contents: a line for each verb and for each definition."""
    parts = (f"{json.dumps(part)}: " + (json.dumps(value) if isinstance(value, str) else "{\n" + (
        ",\n".join(f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items()))
        + "\n}") for part, value in document().items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text())
