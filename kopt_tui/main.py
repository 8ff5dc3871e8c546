"""The `kopt` command: finds the verb, imports that verb's module only, and tells every error.

Exit codes: 0 ok, 1 the answer is no, 2 bad usage or input, 3 environment.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from harness.errors import EnvironmentFault, InputError, KoptError
from kopt_tui.cli.parser import Parser
from kopt_tui.cli.workspace import workspace_of

VERBS = {
    "demo": "run a real campaign on this machine, start to end",
    "new": "write a manifest for a kernel or a benchmark, asking for what it cannot infer",
    "run": "start or continue a campaign in a process of its own",
    "attach": "open the dashboard on one campaign",
    "status": "list campaigns and how they stand",
    "show": "everything about a campaign or a candidate",
    "diff": "the patch of a candidate",
    "logs": "the log of a campaign",
    "events": "what happened, line by line; --follow goes on",
    "approve": "keep a candidate that waits for a person",
    "reject": "turn down a candidate that waits for a person",
    "pause": "let a campaign finish what it measures, then wait",
    "resume": "go on with a paused or interrupted campaign",
    "stop": "end a campaign in order",
    "submit": "hand a patch to a campaign's inbox",
    "merge": "take a campaign's result over: branch, squash or patch",
    "prune": "remove what finished campaigns no longer need",
    "propose": "print a target's incumbent and search space",
    "evaluate": "judge one candidate and print the verdict",
    "loop": "search a target's knobs within a budget",
    "trace": "count a program's calls by shape, as weights of the score",
    "report": "a campaign's report as Markdown",
    "gpus": "devices and how they are",
    "doctor": "check this machine for what kopt needs",
    "manifest": "check a manifest, or print its schema",
}
RUNS_A_PROGRAM = ("trace",)
"""Verbs after whose `--` comes the command line of another program."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    words, command = _split(list(sys.argv[1:] if argv is None else argv))
    _complete_streams()
    try:
        code = _run(words, command)
        sys.stdout.flush()
        return code
    except KoptError as error:
        return _report(error, as_json="--json" in words)
    except BrokenPipeError:
        # The reader has seen enough; what is left unwritten must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except ImportError as error:
        return _report(_missing_package(error), as_json="--json" in words)
    except OSError as error:
        what = error.strerror or str(error)
        return _report(EnvironmentFault(what, where=str(error.filename or "")),
                       as_json="--json" in words)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return kopt's own words, and those of the program that a verb is to run."""
    if "--" in words and any(verb in words[:words.index("--")] for verb in RUNS_A_PROGRAM):
        return words[:words.index("--")], words[words.index("--") + 1:]
    return words, []


def _complete_streams() -> None:
    """Put /dev/null where a standard stream is closed; let no character fail to be printed."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _run(words: list[str], command: list[str]) -> int:
    verb = _verb(words)
    parser = _parser()
    if verb is None:
        if any(word in ("-h", "--help") for word in words):
            _add_verbs(parser)
        args = parser.parse_args(words)
        return _dashboard(args)
    module = importlib.import_module(f"kopt_tui.commands.{verb}")
    commands = parser.add_subparsers(prog="kopt", parser_class=Parser)
    module.add(commands)
    commands.choices[verb].description = VERBS[verb]
    _add_workspace(commands.choices[verb], default=argparse.SUPPRESS)
    args = parser.parse_args(words, argparse.Namespace(command=command))
    code: int = module.run(args)
    return code


def _verb(words: Sequence[str]) -> str | None:
    """Return the verb of a command line, None when it asks for the dashboard."""
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word in ("--workspace", "--campaign"):
            takes_value = True
        elif not word.startswith("-"):
            if word not in VERBS:
                from harness.formats.yaml_decode import suggest

                raise InputError(f"unknown command {word!r}",
                                 fix=suggest(word, VERBS) or "see kopt --help")
            return word
    return None


def _parser() -> Parser:
    parser = Parser(prog="kopt", description="GPU-kernel optimisation campaigns. "
                     "Without a command it opens the dashboard.")
    parser.add_argument("--version", action="version", version=f"kopt {_version()}")
    parser.add_argument("--readonly", action="store_true", help="a dashboard that only watches")
    parser.add_argument("--campaign", metavar="ID", default=None, help="open it on this campaign")
    _add_workspace(parser, default=None)
    return parser


def _add_workspace(parser: argparse.ArgumentParser, default: Any) -> None:
    parser.add_argument("--workspace", metavar="DIR", default=default,
                        help="where campaigns live (KOPT_WORKSPACE, else ./workspace)")


def _add_verbs(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for verb, help in VERBS.items():
        commands.add_parser(verb, help=help)


def _version() -> str:
    from kopt_tui import __version__

    return __version__


def _dashboard(args: argparse.Namespace) -> int:
    from kopt_tui.dashboard import launch

    return launch.main(workspace_of(args), readonly=args.readonly, campaign=args.campaign)


def _missing_package(error: ImportError) -> KoptError:
    """Return which declared package is missing or broken; raises what kopt itself did wrong."""
    from engine.doctor import declared_packages

    package = declared_packages.culprit(error)
    if package is None:
        raise error
    what = declared_packages.describe(package, str(error))
    return EnvironmentFault(f"the package {package.name} {what}",
                            fix=f"{package.fix}; kopt doctor checks all packages")


def _report(error: KoptError, *, as_json: bool) -> int:
    """Print an error as one line, with --json also as JSON, and return its exit code."""
    from harness.formats.text import plain

    line = " ".join(plain(str(error)).split())
    print(f"kopt: {line}", file=sys.stderr)
    if as_json:
        import json

        fields = {"what": error.what, "where": error.where, "fix": error.fix,
                  "exit_code": error.exit_code}
        print(json.dumps({"error": fields}, ensure_ascii=False), flush=True)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
