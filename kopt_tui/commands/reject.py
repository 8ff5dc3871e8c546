"""`kopt reject`: turn down a candidate that waits for approval."""

from __future__ import annotations

import argparse

from kopt_tui.cli.parser import Commands
from kopt_tui.cli.request import add_candidate, decide


def add(sub: Commands) -> None:
    add_candidate(sub, "reject")


def run(args: argparse.Namespace) -> int:
    return decide(args, "reject")
