"""Checks values against JSON schemas, and what commands print against those of their verbs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jsonschema import Draft202012Validator

from docs import write_schemas
from kopt_tui.cli.parser import answer_schema
from kopt_tui.main import VERBS


def faults(value: object, schema: dict[str, Any]) -> list[str]:
    """Return the violations of a schema, each with its place in the value."""
    return [f"{error.json_path}: {error.message}"
            for error in Draft202012Validator(schema).iter_errors(value)]


def answer_faults(words: Sequence[str], value: object) -> list[str]:
    """Return where an answer does not follow the schema of the command line that printed it."""
    known = _known()
    verb = next(word for word in words if word in VERBS)
    named = [f"{verb} {word}" for word in words if f"{verb} {word}" in known]
    return faults(value, known[(named or [verb])[0]])


@functools.cache
def _known() -> dict[str, dict[str, Any]]:
    return {name: answer_schema(*types) for name, types in write_schemas.answers().items()}
