"""`kopt approve`: keep a candidate that waits for a person."""

from __future__ import annotations

import argparse

from kopt_tui.commands.ask import add_candidate, decide
from kopt_tui.commands.parser import Commands


def add(sub: Commands) -> None:
    add_candidate(sub, "approve")


def run(args: argparse.Namespace) -> int:
    return decide(args, "approve")
