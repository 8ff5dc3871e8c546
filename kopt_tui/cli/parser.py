"""The parser of every verb, and the arguments that several verbs take."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypedDict

from harness.errors import InputError

MANIFEST = Path("manifest.yaml")
MOST = 2**53 - 1
"""The largest whole number that JSON's readers agree on; the journal's are below it."""


class ErrorFields(TypedDict):
    """What went wrong, where, and the fix.

    Exit codes: 1 means that the answer is no, 2 wrong usage or input, 3 a fault of the machine.
    """

    what: str
    where: str
    fix: str
    exit_code: int


class ErrorReport(TypedDict):
    """What each verb prints with --json instead of its answer when it fails."""

    error: ErrorFields


class Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line, like every other error of kopt."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message, fix=f"see {self.prog} --help")


class Actions:
    """The actions of a verb, such as `kopt knowledge show`."""

    def __init__(self, verb: argparse.ArgumentParser) -> None:
        self._actions = verb.add_subparsers(metavar="ACTION", parser_class=Parser)

    def add(self, name: str, purpose: str) -> argparse.ArgumentParser:
        """Add an action, whose purpose is in the verb's help and in its own."""
        return self._actions.add_parser(name, help=purpose, description=purpose)

    @property
    def parsers(self) -> Mapping[str, argparse.ArgumentParser]:
        return self._actions.choices


def add_campaign(parser: argparse.ArgumentParser, default: str = "the newest campaign") -> None:
    parser.add_argument("campaign", metavar="CAMPAIGN", nargs="?", default=None,
                        help=f"its name or the start of it (default: {default})")


def add_manifest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST", nargs="?", type=Path, default=MANIFEST,
                        help=f"a manifest file (default: ./{MANIFEST})")


def add_predict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--predict", metavar="CARD", default="",
                        help="where no GPU can be measured, predict Triton latencies for this "
                        "card, such as H200 or MI300X; it need not be in this machine")


def add_json(parser: argparse.ArgumentParser, *answers: type, default: Any = False) -> None:
    """Add --json and --schema; `answers` are the types of what the verb prints with --json."""
    parser.add_argument("--json", action="store_true", default=default, help="print JSON")
    parser.add_argument("--schema", action=PrintSchema, const=answers, nargs=0,
                        help="print the JSON schema of the --json output, and exit")


class PrintSchema(argparse.Action):
    """Prints the JSON schema of its answers and ends the command, as --help does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import json  # start-up time

        print(json.dumps(answer_schema(*self.const), indent=1))
        parser.exit()


def answer_schema(*answers: type) -> dict[str, Any]:
    """Return the JSON schema of what a verb prints: an object, of one of several kinds.

    All fields of an answer are always there; only an input document may leave some out.
    """
    import msgspec  # start-up time

    roots, shapes = msgspec.json.schema_components(answers, ref_template="#/$defs/{name}")
    for shape in shapes.values():
        if "properties" in shape and shape.get("additionalProperties") is not False:
            shape["required"] = list(shape["properties"])
    if len(answers) > 1:
        return {"type": "object", "anyOf": list(roots), "$defs": shapes}
    root = shapes.pop(roots[0]["$ref"].rpartition("/")[2])
    return {**root, "$defs": shapes}


def count(text: str) -> int:
    """Return a number of things from a command line, as `type` of an argument."""
    number = int(text)
    if not 0 <= number <= MOST:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {MOST}")
    return number


def add_workspace(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument("--workspace", metavar="DIR", default=default,
                        help="folder of the campaigns (default: KOPT_WORKSPACE, else ./workspace)")


def workspace_of(args: argparse.Namespace) -> Path:
    """Return the workspace: --workspace, KOPT_WORKSPACE, or ./workspace."""
    return Path(args.workspace or os.environ.get("KOPT_WORKSPACE") or "workspace").expanduser()
