"""The parameters of a new manifest at a terminal: given by flags, shown, confirmed or edited."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TextIO

from engine.discovery.new.parameters import Parameters
from harness.errors import InputError, KoptError
from kopt_tui.cli.prompt import Prompt
from kopt_tui.snapshot.phrases import clean

FLAGS = {"benchmark": "benchmark_command", "csv": "csv", "check": "check", "metrics": "metrics",
         "edit": "edit", "device": "device", "approval": "approval", "rounds": "max_iterations"}
"""Flags that give a parameter, and which."""
WIDTH = 60
"""Characters of a value in the list; more is cut there, and whole in the manifest."""

Given = dict[str, str]


def given(args: argparse.Namespace) -> Given:
    """Return the parameters that flags give. Raises InputError."""
    found = {name: str(value) for flag, name in FLAGS.items()
             if (value := getattr(args, flag)) is not None}
    for text in args.set:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InputError(f"cannot read --set {text}", fix="write --set NAME=VALUE")
        found[name.strip()] = value
    return found


def confirmed(known: Parameters, given: Given, prompt: Prompt,
              change: Callable[[Given], Parameters],
              missing: Callable[[Parameters], str] = lambda known: "") -> Parameters:
    """Return the parameters after the person's changes; `change` makes them of all that is given.

    A change that it refuses is told, and forgotten.
    """
    while prompt.interactive:
        text = prompt.line("NAME=VALUE changes a parameter, Enter takes them: ")
        if not text:
            if not (name := missing(known)):
                return known
            print(f"{name} is still missing", file=sys.stderr)
            continue
        name, _, value = text.partition("=")
        trial = {**given, name.strip(): value.strip()}
        try:
            known = change(trial)
        except KoptError as error:
            print(clean(str(error)), file=sys.stderr)
            continue
        given.update(trial)
        show(known, sys.stderr)
    return known


def show(known: Parameters, to: TextIO) -> None:
    """Print the list of parameters."""
    for one in known.values():
        value = clean(one.value)
        cut = value if len(value) <= WIDTH else f"{value[:WIDTH - 3]}..."
        origin = f"  ({clean(one.origin)})" if one.origin and one.origin != "given" else ""
        print(f"  {one.name:18} {cut or '-'}{origin}", file=to)


def told(known: Parameters) -> dict[str, dict[str, str]]:
    """Return the parameters as --json has them."""
    return {one.name: {"value": one.value, "from": one.origin} for one in known.values()}
