"""The parser that all commands share, and the arguments that many of them take."""

from __future__ import annotations

import argparse
from typing import NoReturn, TypeAlias

from harness.errors import InputError


class Parser(argparse.ArgumentParser):
    """Tells wrong usage as kopt tells every error: in one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message, fix=f"see {self.prog} --help")


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def add_campaign(parser: argparse.ArgumentParser) -> None:
    """Add the optional CAMPAIGN argument."""
    parser.add_argument("campaign", metavar="CAMPAIGN", nargs="?", default=None,
                        help="its name or the start of it; by default the newest")


def add_predict(parser: argparse.ArgumentParser) -> None:
    """Add --predict."""
    parser.add_argument("--predict", metavar="CARD", default="",
                        help="predict Triton latencies for a card that need not be here, such as "
                        "H200 or MI300X, where none is measured")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print JSON")
