"""The parameters of a new manifest: read from flags, shown, confirmed or changed by a person."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec

from engine.discovery.new.parameters import Parameter, Parameters, pool_of
from engine.manifest.schema import Manifest
from harness.errors import InputError, KoptError
from kopt_tui.cli.new.new_facts import NewFacts
from kopt_tui.cli.prompt import Prompt
from kopt_tui.cli.text_lines import print_text
from kopt_tui.snapshot.phrases import clean

FLAGS = {"benchmark": "benchmark_command", "csv": "csv", "check": "check", "metrics": "metrics",
         "edit": "edit", "device": "device", "approval": "approval", "rounds": "max_iterations"}
"""Flags and the parameters that they set."""
WIDTH = 200
"""The most characters of a value in the list; the manifest has the whole value."""
INDENT = 21
"""Where the values of the list begin."""


@dataclass(frozen=True, kw_only=True)
class NewManifest:
    """A manifest with its parameters; `lines` and, for --json, `facts` say what it is about."""

    manifest: Manifest
    parameters: Parameters
    lines: tuple[str, ...]
    facts: NewFacts


def pool(args: argparse.Namespace) -> dict[str, Any]:
    """Return the manifest's `pool` that flags ask for."""
    return pool_of(args.backends or "", args.agent or "", args.agent_env or "",
                   args.agent_network or "")


def from_flags(args: argparse.Namespace) -> dict[str, str]:
    """Return the parameters that flags set. Raises InputError."""
    parameters = {name: str(value) for flag, name in FLAGS.items()
                  if (value := getattr(args, flag)) is not None}
    for text in args.set:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InputError(f"cannot read --set {text}", fix="write --set NAME=VALUE")
        parameters[name.strip()] = value
    return parameters


def confirm(known: Parameters, values: dict[str, str], prompt: Prompt,
            change: Callable[[dict[str, str]], Parameters],
            missing: Callable[[Parameters], str] = lambda known: "") -> Parameters:
    """Return the parameters after the person's changes, which are added to `values`.

    `change` infers all parameters from the values; a value that it refuses is reported and dropped.
    `missing` says what the parameters lack, "" if nothing.
    """
    while prompt.interactive:
        text = prompt.line("NAME=VALUE changes a parameter, Enter accepts all: ")
        if not text:
            if not (complaint := missing(known)):
                return known
            print_text(complaint, sys.stderr)
            continue
        try:
            name, value = _assignment(text)
            trial = {**values, name: value}
            changed = change(trial)
        except KoptError as error:
            print_text(clean(str(error)), sys.stderr)
            continue
        show_changes(known, changed, sys.stderr)
        known = changed
        values.update(trial)
    return known


def _assignment(text: str) -> tuple[str, str]:
    """Return the name and value of `check=err == 0`, or of `--check 'err == 0'`, as messages have
    it. Raises InputError.
    """
    if not text.startswith("--"):
        name, _, value = text.partition("=")
        return name.strip(), value.strip()
    flag, _, value = text.removeprefix("--").partition(" ")
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise InputError(f"cannot read {text}: {error}", fix="write NAME=VALUE") from None
    return FLAGS.get(flag, flag), " ".join(words)


def show(known: Parameters, to: TextIO) -> None:
    """Show what is known of a manifest, and name the parameters that have no value."""
    for parameter in known.values():
        if parameter.value:
            _show(parameter, to)
    unset = [parameter.name + (f" ({parameter.origin})" if parameter.origin else "")
             for parameter in known.values() if not parameter.value]
    print_text(f"  {'not set':18} {', '.join(unset)}", to, INDENT)


def show_changes(before: Parameters, known: Parameters, to: TextIO) -> None:
    for name, parameter in known.items():
        if parameter != before.get(name):
            _show(parameter, to)


def _show(parameter: Parameter, to: TextIO) -> None:
    value = clean(parameter.value)
    shown = value if len(value) <= WIDTH else f"{value[:WIDTH - 3]}..."
    origin = "" if parameter.origin in ("", "given") else f"  ({clean(parameter.origin)})"
    print_text(f"  {parameter.name:18} {shown or '-'}{origin}", to, INDENT)


class ChosenValue(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a parameter, and where it comes from."""

    value: str
    origin: str = msgspec.field(name="from")


def as_json(known: Parameters) -> dict[str, ChosenValue]:
    """Return the parameters in the form of --json."""
    return {parameter.name: ChosenValue(value=parameter.value, origin=parameter.origin)
            for parameter in known.values()}


def pairs(texts: Sequence[str], flag: str) -> dict[str, str]:
    """Return NAME=VALUE texts as a dict. Raises InputError naming the flag."""
    parts = [text.partition("=") for text in texts]
    for text, (name, _, value) in zip(texts, parts, strict=True):
        if not (name and value):
            raise InputError(f"cannot read {flag} {text}", fix=f"write {flag} NAME=...")
    return {name.strip(): value for name, _, value in parts}
